/** Adaptive against naive, or any run beside any other: the operator says which file that is. */

import { useMemo } from "preact/hooks";
import { Card, Empty } from "./card";
import {
  compared, lossLines, lossWords, shareWords, timeLines, timeWords, unitOf,
} from "./comparison";
import { Lines } from "./drawings/lines";
import type { Baseline, OtherRun, RoundRecord } from "./facts";
import type { Walk } from "./walks";

export function ComparisonCard(
  { baseline, rounds, walks }: {
    baseline: Baseline | null; rounds: readonly RoundRecord[]; walks: readonly Walk[];
  },
) {
  if (baseline === null) return null;
  const { baseline: other, why_not: why } = baseline;
  return (
    <Card id="comparison" title="Beside another run" aside={other?.name}>
      {other === null
        ? <Empty>{why === null || why.startsWith("no other run is named") ? HOW : `${why}. ${HOW}`}
        </Empty>
        : <Beside other={other} rounds={rounds} walks={walks} />}
    </Card>
  );
}

const HOW = "To see what adapting brings, save what `simnet run SCENARIO --json` says of a "
  + "scenario with `work.adaptive: false`, or `daa-node rounds --json` of another network, name "
  + "that file as `history.baseline` in config.yaml, and start the node again.";

function plain(value: number): string {
  return String(Number(value.toPrecision(4)));
}

function Beside(
  { other, rounds, walks }: {
    other: OtherRun; rounds: readonly RoundRecord[]; walks: readonly Walk[];
  },
) {
  const both = useMemo(() => compared(rounds, other), [rounds, other]);
  if (both === null) {
    return (
      <Empty>This node has walked no round yet at a height that the other run has, too.</Empty>
    );
  }
  const { name: unit } = unitOf(both), shares = shareWords(walks, other);
  return (
    <>
      <p class="words">{lossWords(both)}</p>
      <Lines
        lines={lossLines(both, other.name)} words={`Loss over time. ${lossWords(both)}`}
        axis="Time in rounds" shownX={(time) => `${plain(time)} ${unit}`}
        shownY={plain}
      />
      <h3>Time of a round, by height</h3>
      <p class="words">{timeWords(both)}{shares === "" ? "" : ` ${shares}`}</p>
      <Lines
        lines={timeLines(both, other.name)} words={`Time of a round. ${timeWords(both)}`}
        axis="Height" shownX={(height) => String(height)} shownY={(wallS) => `${plain(wallS)} s`}
        fromZero
      />
    </>
  );
}
