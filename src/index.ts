export { type Broker, type BrokerTuning, createBroker } from "./broker.ts";
export { BROKER_DEFAULTS, type BrokerOptions } from "./options.ts";
export { BrokerError } from "./protocol/problems.ts";
export { VERSION } from "./version.ts";
