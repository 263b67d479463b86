/** Pieces under this size are copied together, so that one-byte writes cannot turn a line into millions of objects. */
const SMALL_PIECE_BYTES = 4096;
const BLOCK_BYTES = 64 * 1024;

/** The bytes of a line that has not ended yet. */
export interface HeldBytes {
  add(piece: Buffer): void;
  /** All bytes as one buffer, joined once; afterwards nothing is held. */
  take(): Buffer;
  clear(): void;
}

/** Large pieces are kept as they are (no copy), small ones are gathered in blocks. Cost is linear in the bytes, whatever the chunking. */
export function createHeldBytes(): HeldBytes {
  let pieces: Buffer[] = [];
  let block = Buffer.alloc(0);
  let blockUsed = 0;

  function closeBlock(): void {
    if (blockUsed === 0) return;
    pieces.push(block.subarray(0, blockUsed));
    block = block.subarray(blockUsed);
    blockUsed = 0;
  }

  function clear(): void {
    pieces = [];
    blockUsed = 0;
  }

  return {
    add(piece) {
      if (piece.length >= SMALL_PIECE_BYTES) {
        closeBlock();
        pieces.push(piece);
        return;
      }
      if (blockUsed + piece.length > block.length) {
        closeBlock();
        block = Buffer.allocUnsafeSlow(BLOCK_BYTES);
      }
      piece.copy(block, blockUsed);
      blockUsed += piece.length;
    },
    take() {
      const only = blockUsed === 0 && pieces.length === 1 ? pieces[0] : undefined;
      const whole = only ?? Buffer.concat([...pieces, block.subarray(0, blockUsed)]);
      clear();
      return whole;
    },
    clear,
  };
}
