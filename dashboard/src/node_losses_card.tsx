/** What each contributor says of the model, beside the others: one row a node. */

import { useMemo } from "preact/hooks";
import { Card, Empty } from "./card";
import { HeatMap } from "./drawings/heat_map";
import type { Losses } from "./facts";
import { AWAY_BOUNDS, lossWords, rowsOf } from "./node_losses";
import { nats } from "./words";

export function NodeLossesCard({ losses }: { losses: Losses | null }) {
  const drawn = useMemo(() => (losses === null ? null : {
    rows: rowsOf(losses), words: lossWords(losses),
    columns: losses.heights.map((height) => `height ${height}`),
  }), [losses]);
  if (losses === null || drawn === null) return null;
  const hidden = losses.nodes_in_all - losses.nodes.length;
  return (
    <Card
      id="node-losses" title="Loss by node"
      aside="what each measured of a checkpoint, as far from the median as its colour says"
    >
      {drawn.rows.length === 0
        ? <Empty>With each contribution a node says what loss it measured before it trained. From
          the second checkpoint on these stand here side by side.</Empty>
        : (
          <>
            <p class="words">{drawn.words}</p>
            <HeatMap
              {...drawn} bounds={AWAY_BOUNDS} rowTitle="Node"
              shown={(away) => `${Number(nats(away))} away`}
            />
            {hidden > 0 && (
              <p class="words">These were farthest from the median. {hidden} more were nearer.</p>
            )}
          </>
        )}
    </Card>
  );
}
