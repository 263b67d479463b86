/** contract 3: roles form a set; operator is admin of every tenant. */
export const ROLES = ["viewer", "approver", "driver", "admin", "operator"] as const;
export type Role = (typeof ROLES)[number];

/** What a principal may want to do. Which role may do what is auth's table. */
export type Action = "read" | "answer" | "drive" | "administer";
