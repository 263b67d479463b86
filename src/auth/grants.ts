import { BrokerError } from "../protocol/problems.ts";
import type { Role } from "../protocol/roles.ts";
import type { CheckedKey } from "./keys.ts";
import type { KeyView, NewKey, NewTicket, Principal } from "./port.ts";
import { DEFAULT_ROLES, rolesOf, withinRoles } from "./roles.ts";

const TENANT = /^[a-z0-9][a-z0-9-]{0,62}$/;

/** The tenant whose keys this principal manages; undefined = all. */
export const managedTenant = ({ roles, tenant }: Principal): string | undefined =>
  roles.includes("operator") ? undefined : tenant;

function refuseAbove(roles: readonly Role[], maker: Principal, message: string): void {
  if (withinRoles(roles, maker.roles)) return;
  throw new BrokerError("forbidden", message, { details: { field: "roles" } });
}

/** A key that this principal may make: nobody grants above himself. @throws BrokerError bad_request, forbidden */
export function checkedKey(maker: Principal, wanted: NewKey): CheckedKey {
  if (!TENANT.test(wanted.tenant)) {
    throw new BrokerError("bad_request", "tenant: must be lower-case letters, digits and dashes.", {
      details: { field: "tenant" },
    });
  }
  const managed = managedTenant(maker);
  if (managed !== undefined && managed !== wanted.tenant) {
    throw new BrokerError("forbidden", "tenant: keys of other tenants are made by operators. Leave it out.", {
      details: { field: "tenant" },
    });
  }
  const roles = wanted.roles === undefined ? DEFAULT_ROLES : rolesOf(wanted.roles);
  refuseAbove(roles, maker, "roles: nobody grants above himself. Ask for fewer.");
  return { ...wanted, roles };
}

/** Whether there is such a key for this manager, and none that stands above him. @throws BrokerError not_found, forbidden */
export function checkRevocable(manager: Principal, key: KeyView | undefined): KeyView {
  const managed = managedTenant(manager);
  if (key === undefined || (managed !== undefined && key.tenant !== managed)) {
    throw new BrokerError("not_found", "There is no key with this id.");
  }
  refuseAbove(key.roles, manager, "This key may do more than yours. Ask an operator.");
  return key;
}

/** What a ticket stands for. @throws BrokerError bad_request, forbidden, not_found */
export function ticketPrincipal(maker: Principal, { sessionId, roles }: NewTicket): Principal {
  const wanted = roles === undefined ? maker.roles : rolesOf(roles);
  refuseAbove(wanted, maker, "roles: a ticket never exceeds its maker. Ask for fewer.");
  if (maker.sessionId !== undefined && sessionId !== undefined && sessionId !== maker.sessionId) {
    throw new BrokerError("not_found", "There is no session with this id.");
  }
  const session = sessionId ?? maker.sessionId;
  return { ...maker, roles: wanted, ticket: true, ...(session !== undefined && { sessionId: session }) };
}
