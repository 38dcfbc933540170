/** Where the page may dial: what /gateway.json of its own origin tells, looked at. */

import { PROTOCOL_VERSION } from "./messages";

const TOLD_BYTES_MAX = 64 * 1024;
const PATIENCE_MS = 15_000;
const KINDS_MAX = 64;
const ADDRESSES_MAX = 16; // as many as a gateway tells

/** Why the page does not get to its gateway: a reason of docs/volunteers.md, or one of its own. */
export class NoWay extends Error {
  override readonly name = "NoWay";
  readonly reason: string;

  constructor(reason: string, words: string) {
    super(words);
    this.reason = reason;
  }
}

export interface Told {
  readonly chainId: string; // hex
  readonly nodeId: string; // hex
  readonly peerId: string;
  readonly protocolVersion: number;
  readonly site: string | null;
  readonly wanted: readonly string[];
  readonly sessions: readonly [now: number, max: number];
  readonly dial: readonly string[]; // those that this page may dial
}

/** Asks the page's own origin. Throws NoWay. */
export async function askedGateway(origin: string): Promise<Told> {
  const address = new URL("/gateway.json", origin);
  const signal = AbortSignal.timeout(PATIENCE_MS);
  let response: Response, words: string;
  try {
    response = await fetch(address, { cache: "no-store", signal });
    words = await response.text();
  } catch (fault) {
    if (!(fault instanceof TypeError) && !(fault instanceof DOMException)) throw fault;
    throw new NoWay("unreachable", `${address.host} does not answer`);
  }
  if (!response.ok) {
    const reason = response.status >= 500 ? "unreachable" : "no-gateway";
    throw new NoWay(reason, `${address.href}: ${response.status}`);
  }
  if (words.length > TOLD_BYTES_MAX) throw new NoWay("no-gateway", "what it tells is too long");
  return read(words, address.protocol === "https:");
}

/** Throws NoWay: "no-gateway", "version" or "unreachable". */
export function read(words: string, isSecure: boolean): Told {
  const told = parsed(words);
  const isHex = (value: unknown): value is string =>
    typeof value === "string" && /^[0-9a-f]{64}$/.test(value);
  const { chain_id: chainId, node_id: nodeId, peer_id: peerId, site } = told;
  const { protocol_version: version, protocol_version_min: versionMin } = told;
  const wanted = texts(told["wanted"], KINDS_MAX), dial = texts(told["dial"], ADDRESSES_MAX);
  const sessions = told["volunteers"];
  if (
    !isHex(chainId) || !isHex(nodeId) || typeof peerId !== "string" || wanted === null
    || dial === null || !isPair(sessions) || !isCount(version) || !isCount(versionMin)
  ) {
    throw new NoWay("no-gateway", "what is at this address tells nothing of a gateway");
  }
  if (PROTOCOL_VERSION < versionMin || PROTOCOL_VERSION > version) {
    throw new NoWay(
      "version", `the page speaks ${PROTOCOL_VERSION}, the gateway ${versionMin} to ${version}`,
    );
  }
  const allowed = dial.filter((address) => !isSecure || isSecureAddress(address));
  if (allowed.length === 0) {
    throw new NoWay("unreachable", "the gateway tells no address that this page may dial");
  }
  return {
    chainId, nodeId, peerId, protocolVersion: version,
    site: typeof site === "string" ? site : null, wanted, sessions, dial: allowed,
  };
}

/** Whether a multiaddr is of a WebSocket over TLS. */
export function isSecureAddress(address: string): boolean {
  return /\/(wss|tls\/ws)(\/p2p\/|$)/.test(address);
}

function parsed(words: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(words);
    if (typeof value === "object" && value !== null) return value as Record<string, unknown>;
  } catch (fault) {
    if (!(fault instanceof SyntaxError)) throw fault;
  }
  throw new NoWay("no-gateway", "what is at this address tells nothing of a gateway");
}

function texts(value: unknown, countMax: number): readonly string[] | null {
  const isTexts = Array.isArray(value) && value.length <= countMax
    && value.every((each) => typeof each === "string");
  return isTexts ? value as string[] : null;
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

function isPair(value: unknown): value is readonly [number, number] {
  return Array.isArray(value) && value.length === 2 && value.every(isCount);
}
