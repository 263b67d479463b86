/** contract 3: roles form a set; operator is admin of every tenant. A runner owns agents on a machine of its own, and does nothing else. */
export const ROLES = ["viewer", "approver", "driver", "admin", "operator", "runner"] as const;
export type Role = (typeof ROLES)[number];

/** What a principal may want to do. Which role may do what is auth's table. */
export type Action = "read" | "answer" | "drive" | "administer" | "host";
