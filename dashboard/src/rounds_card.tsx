/** The newest rounds, step by step: where their time went, and what came of them. */

import { Card, Empty } from "./card";
import { lastsS, lastToCome, STEP_WORDS, stepsOf, type StepName, type Walk } from "./walks";
import { count, nats, NOTHING, seconds, short } from "./words";

export function RoundsCard(
  { walks, nowS, me }: { walks: readonly Walk[]; nowS: number; me: string },
) {
  const shown = walks.filter((walk) => walk.beganS !== null).reverse().slice(0, 8);
  const longestS = Math.max(0.1, ...shown.map((walk) => lastsS(walk, nowS) ?? 0));
  return (
    <Card id="rounds" title="Rounds" aside="newest first; the bars share one scale">
      {shown.length === 0
        ? <Empty>The next round that begins is drawn here, step by step, as it happens.</Empty>
        : (
          <>
            <ul class="legend" aria-hidden="true">
              {(Object.keys(STEP_WORDS) as StepName[]).map((name) => (
                <li key={name}><i class={`step ${name}`} />{STEP_WORDS[name]}</li>
              ))}
            </ul>
            <ol class="rounds">
              {shown.map((walk) => (
                <Round key={walk.round} walk={walk} nowS={nowS} longestS={longestS} me={me} />
              ))}
            </ol>
          </>
        )}
    </Card>
  );
}

function Round(
  { walk, nowS, longestS, me }: { walk: Walk; nowS: number; longestS: number; me: string },
) {
  const steps = stepsOf(walk, nowS), lasts = lastsS(walk, nowS);
  const told = steps.map(({ name, fromS, toS }) => `${STEP_WORDS[name]} ${seconds(toS - fromS)}`);
  return (
    <li>
      <p class="round-head">
        <b>Round {walk.round}</b>
        <span class={`mark ${markOf(walk)}`}>{endOf(walk)}</span>
        <span class="figure">{lasts === null ? NOTHING : seconds(lasts)}</span>
      </p>
      <div class="bar" role="img" aria-label={told.join(", ")}>
        {steps.map(({ name, fromS, toS, isOpen }) => (
          <i
            key={name} class={`step ${name}${isOpen ? " open" : ""}`}
            title={`${STEP_WORDS[name]}: ${seconds(toS - fromS)}`}
            style={{ width: `${(100 * (toS - fromS)) / longestS}%` }}
          />
        ))}
      </div>
      <p class="words">{detailsOf(walk, me).join(" \u00b7 ")}</p>
    </li>
  );
}

function markOf({ end }: Walk): string {
  return end === "final" ? "good" : end === "aborted" ? "bad" : "waits";
}

function endOf({ end, height }: Walk): string {
  if (end === "aborted") return "aborted";
  if (end === null) return "under way";
  return height === null ? "final" : `checkpoint ${height}`;
}

function detailsOf(walk: Walk, me: string): string[] {
  const details: string[] = [];
  if (walk.contributors !== null) details.push(count(walk.contributors, "contribution"));
  else if (walk.end === null) details.push(`${walk.acknowledged.length} acknowledged so far`);
  const last = lastToCome(walk);
  if (last !== null && last.author !== me) {
    details.push(`the last one from ${short(last.author)}, ${seconds(last.afterS)} after ours`);
  }
  if (walk.leftOut !== null && walk.leftOut > 0) details.push(`${walk.leftOut} came too late`);
  if (walk.signers !== null) details.push(count(walk.signers, "signature"));
  if (walk.ownLoss !== null) details.push(`own training loss ${nats(walk.ownLoss)}`);
  if (walk.viewsGivenUp > 0) {
    details.push(`${count(walk.viewsGivenUp, "leader")} passed over: late, or gone`);
  }
  return details;
}
