/** The checkpoints as a graph, and the newest one by one: what each was made of, who signed it. */

import { useState } from "preact/hooks";
import { Card, Empty } from "./card";
import { Dag } from "./drawings/dag";
import type { RoundRecord } from "./facts";
import { checkpointsOf, graphWords } from "./graph";
import type { State } from "./state";
import { count, nats, short } from "./words";

const SHOWN_MAX = 10;

export function Checkpoints({ state, me }: { state: State; me: string }) {
  const { rounds } = state;
  const [picked, setPicked] = useState<string | null>(null);
  const shown = rounds.slice(-SHOWN_MAX).reverse();
  const chosen = rounds.find(({ vertex_id: id }) => id === picked);
  if (chosen !== undefined && !shown.includes(chosen)) shown.push(chosen);
  const older = rounds.length - shown.length;
  const vertices = checkpointsOf(state);
  return (
    <Card id="checkpoints" title="Checkpoints" aside="the newest at the right">
      {shown.length === 0
        ? <Empty>Each certified checkpoint is linked to those that it stands on here, down to the
          first weights.</Empty>
        : (
          <>
            <Dag vertices={vertices} words={graphWords(vertices)} onPick={setPicked} />
            <ol class="chain">
              {shown.map((record, at) => (
                <li key={record.height}>
                  <details open={picked === null ? at === 0 : record === chosen}>
                    <summary>
                      <b>{record.height}</b>
                      <span>{record.height === 0 ? "first weights"
                        : `loss ${nats(record.loss_nats)}`}</span>
                    </summary>
                    <About record={record} me={me} />
                  </details>
                </li>
              ))}
              {older > 0 && <li class="older">{count(older, "older checkpoint")}</li>}
            </ol>
          </>
        )}
    </Card>
  );
}

function About({ record, me }: { record: RoundRecord; me: string }) {
  return (
    <dl class="lines">
      <div><dt>Vertex</dt><dd><code>{record.vertex_id}</code></dd></div>
      <Named title="Trained by" nodes={record.contributors} me={me} />
      <Named title="Signed by" nodes={record.certified_by} me={me} />
      <Named title="Not merged" nodes={record.voided} me={me} />
    </dl>
  );
}

const NAMES_MAX = 64; // more are told by their number

function Named({ title, nodes, me }: { title: string; nodes: readonly string[]; me: string }) {
  if (nodes.length === 0) return null;
  const more = nodes.length - NAMES_MAX;
  return (
    <div>
      <dt>{title}</dt>
      <dd>
        {nodes.slice(0, NAMES_MAX).map((node, at) => (
          <span key={node}>
            {at > 0 && ", "}{node === me ? "this node" : <code title={node}>{short(node)}</code>}
          </span>
        ))}
        {more > 0 && ` and ${more} more`}
      </dd>
    </div>
  );
}
