const LINE_FEED = 10;
const CARRIAGE_RETURN = 13;

/** Where in a line a stream stands: how much of it has come, and whether that ends in a carriage return. */
export interface LinePosition {
  readonly openBytes: number;
  readonly endsInReturn: boolean;
}

const LINE_START: LinePosition = { openBytes: 0, endsInReturn: false };

/** Counts the lines that a LineCutter would make of the same bytes, without looking at them twice. */
export interface LineCounter {
  /** How many lines this chunk completes. */
  count(chunk: Buffer): number;
  /** Goes on to the end of the `wanted`th line. Returns the offset behind its newline, or undefined when the chunk does not hold it. */
  find(chunk: Buffer, wanted: number): number | undefined;
  position(): LinePosition;
  /** Whether end of file now would make a further line. */
  isLineOpen(): boolean;
}

export function createLineCounter(start: LinePosition = LINE_START): LineCounter {
  let { openBytes, endsInReturn } = start;

  /** Empty lines do not count; neither does one that is a carriage return only. */
  const isLine = (): boolean => openBytes > 1 || (openBytes === 1 && !endsInReturn);

  function take(chunk: Buffer, from: number, to: number): void {
    if (to === from) return;
    openBytes += to - from;
    endsInReturn = chunk[to - 1] === CARRIAGE_RETURN;
  }

  function scan(chunk: Buffer, wanted: number): { lines: number; offset: number | undefined } {
    let from = 0;
    let lines = 0;
    for (let end = chunk.indexOf(LINE_FEED); end !== -1; end = chunk.indexOf(LINE_FEED, from)) {
      take(chunk, from, end);
      from = end + 1;
      if (isLine()) lines += 1;
      openBytes = 0;
      endsInReturn = false;
      if (lines === wanted) return { lines, offset: from };
    }
    take(chunk, from, chunk.length);
    return { lines, offset: undefined };
  }

  return {
    count: (chunk) => scan(chunk, -1).lines,
    find: (chunk, wanted) => scan(chunk, wanted).offset,
    position: () => ({ openBytes, endsInReturn }),
    isLineOpen: isLine,
  };
}
