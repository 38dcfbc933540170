/** The chain of checkpoints, newest first: what each was made of, and who signed it. */

import { Card, Empty } from "./card";
import type { RoundRecord } from "./facts";
import { count, nats, short } from "./words";

const SHOWN_MAX = 10;

export function Checkpoints({ rounds, me }: { rounds: readonly RoundRecord[]; me: string }) {
  const shown = rounds.slice(-SHOWN_MAX).reverse();
  const older = rounds.length - shown.length;
  return (
    <Card id="checkpoints" title="Checkpoints" aside="each leads to the one before">
      {shown.length === 0
        ? <Empty>Each certified checkpoint is linked to the one before it here, down to the first
          weights.</Empty>
        : (
          <ol class="chain">
            {shown.map((record, at) => (
              <li key={record.height}>
                <details open={at === 0}>
                  <summary>
                    <b>{record.height}</b>
                    <span>{record.height === 0 ? "first weights" : `loss ${nats(record.loss_nats)}`}
                    </span>
                  </summary>
                  <dl class="lines">
                    <div><dt>Vertex</dt><dd><code>{record.vertex_id}</code></dd></div>
                    <Named title="Trained by" nodes={record.contributors} me={me} />
                    <Named title="Signed by" nodes={record.certified_by} me={me} />
                    <Named title="Not merged" nodes={record.voided} me={me} />
                  </dl>
                </details>
              </li>
            ))}
            {older > 0 && <li class="older">{count(older, "older checkpoint")}</li>}
          </ol>
        )}
    </Card>
  );
}

function Named({ title, nodes, me }: { title: string; nodes: readonly string[]; me: string }) {
  if (nodes.length === 0) return null;
  return (
    <div>
      <dt>{title}</dt>
      <dd>{nodes.map((node, at) => (
        <span key={node}>
          {at > 0 && ", "}{node === me ? "this node" : <code title={node}>{short(node)}</code>}
        </span>
      ))}</dd>
    </div>
  );
}
