/** What the runs of a comparison came to, side by side. */

import { Card } from "../card";
import { Lines } from "../drawings/lines";
import { Pairs } from "../drawings/pairs";
import { Shares } from "../drawings/shares";
import { seconds } from "../words";
import { asideOf, curvesOf, pairsOf, PARTS, timesRows, wordsOf } from "./sides";
import type { Sides } from "./story";

export function SidesCard({ sides }: { sides: Sides }) {
  const curves = curvesOf(sides), rows = timesRows(sides);
  const broken = sides.broken.flatMap((own, at) => own.map((what) => (
    `${sides.names[at] ?? ""}: ${what}`)));
  const capital = sides.names.join(" against ");
  return (
    <Card
      id="sides" title={capital.charAt(0).toUpperCase() + capital.slice(1)} aside={asideOf(sides)}
    >
      {broken.map((what) => <p key={what}><span class="mark bad">Broken, {what}</span></p>)}
      <Pairs sides={sides.names} pairs={pairsOf(sides)} words={wordsOf(sides)} />
      {rows.length > 0 && (
        <>
          <h3>Where each class's time went</h3>
          <Shares
            parts={PARTS} rows={rows} words={`Shares of time of ${rows.length} kinds of nodes.`}
          />
        </>
      )}
      {curves.length > 0 && (
        <>
          <h3>Held-out loss over virtual time, nats a token</h3>
          <Lines
            lines={curves} axis="Time" shownX={(ms) => seconds(ms / 1_000)}
            shownY={(nats) => nats.toFixed(2)}
            words={`Held-out loss of ${curves.map(({ name }) => name).join(" and ")}.`}
          />
        </>
      )}
    </Card>
  );
}
