/**
 * The way to the gateway: js-libp2p over a WebSocket, with noise and yamux.
 *
 * Nothing is listened to, nobody else is dialled or let in, and no protocol but the volunteer's is
 * spoken: whatever the gateway asks for on streams of its own is answered "na" by multistream.
 */

import { generateKeyPair } from "@libp2p/crypto/keys";
import type { Stream } from "@libp2p/interface";
import { noise } from "@libp2p/noise";
import { webSockets } from "@libp2p/websockets";
import { yamux } from "@libp2p/yamux";
import { multiaddr } from "@multiformats/multiaddr";
import { createLibp2p, type Libp2p } from "libp2p";
import { NoWay } from "./gateway";
import { PROTOCOL } from "./messages";

const DIAL_MS = 15_000; // of one address
const CLOSE_MS = 2_000;

export interface Way {
  readonly address: string; // the one that answered
  readonly peerId: string; // ours
  readonly peers: number;
  send(bytes: Uint8Array): void;
  close(): void;
}

/**
 * The first of the addresses that answers. `hear` is given what comes, `gone` is called once it
 * ends. Throws NoWay "unreachable".
 */
export async function dialled(
  addresses: readonly string[], hear: (bytes: Uint8Array) => void, gone: () => void,
  signal: AbortSignal,
): Promise<Way> {
  const node = await createLibp2p({
    privateKey: await generateKeyPair("Ed25519"), // of this page alone, and gone with it
    addresses: { listen: [] },
    transports: [webSockets()],
    connectionEncrypters: [noise()],
    streamMuxers: [yamux()],
    connectionGater: { denyDialMultiaddr: () => false, denyInboundConnection: () => true },
    connectionManager: { maxConnections: 1, reconnectRetries: 0 },
    connectionMonitor: { enabled: false }, // the protocol has beats of its own
  });
  try {
    const [address, stream] = await firstThatAnswers(node, addresses, signal);
    return wayBy(node, address, stream, hear, gone);
  } catch (fault) {
    await node.stop();
    throw fault;
  }
}

async function firstThatAnswers(
  node: Libp2p, addresses: readonly string[], signal: AbortSignal,
): Promise<[string, Stream]> {
  const failures: string[] = [];
  for (const address of addresses) {
    const limit = AbortSignal.any([signal, AbortSignal.timeout(DIAL_MS)]);
    try {
      return [address, await node.dialProtocol(multiaddr(address), PROTOCOL, { signal: limit })];
    } catch (fault) {
      if (!(fault instanceof Error)) throw fault;
      if (signal.aborted) break;
      failures.push(`${address}: ${fault.message}`);
    }
  }
  throw new NoWay("unreachable", failures.join("; "));
}

function wayBy(
  node: Libp2p, address: string, stream: Stream, hear: (bytes: Uint8Array) => void,
  gone: () => void,
): Way {
  stream.addEventListener("message", ({ data }) => {
    hear(data instanceof Uint8Array ? data : data.subarray());
  });
  stream.addEventListener("remoteCloseWrite", gone);
  stream.addEventListener("close", gone);
  return {
    address,
    peerId: node.peerId.toString(),
    peers: node.getPeers().length,
    send: (bytes) => {
      stream.send(bytes);
    },
    close: () => {
      const limit = { signal: AbortSignal.timeout(CLOSE_MS) };
      // what was said last is let through; whoever does not take it is hung up on
      stream.close(limit).catch((fault: Error) => stream.abort(fault)).then(() => node.stop());
    },
  };
}
