/** The page of one run: what it was, what had to hold, and what each node did when. */

import type { ComponentChildren } from "preact";
import { Card } from "../card";
import { count, nats, NOTHING, seconds } from "../words";
import { inSeconds } from "./lanes";
import { LossCard } from "./loss_card";
import { Rows } from "./rows";
import { SidesCard } from "./sides_card";
import type { Invariant, Story } from "./story";
import { Timeline } from "./timeline";

const FEW = 8; // so many lines are no burden

export function Page({ story }: { story: Story }) {
  return (
    <>
      <a class="skip" href="#main">To the content</a>
      <header>
        <p class="brand">simnet</p>
        <p class="who">a run of <code>{story.scenario}</code></p>
        <p class={`link mark ${story.ok ? "good" : "bad"}`}>
          {story.ok ? "All of it held" : "Something broke"}
        </p>
      </header>
      <main id="main">
        <First story={story} />
        {story.sides !== null && <SidesCard sides={story.sides} />}
        <Invariants story={story} />
        <Timeline story={story} />
        <Faults story={story} />
        <LossCard story={story} />
        <Rounds story={story} />
        <Routers story={story} />
        <Measured story={story} />
        <Card id="scenario" title="Scenario">
          <Text name="Scenario file">{story.file}</Text>
        </Card>
        <Card id="again" title="Again">
          <Text name="Command that runs it again">{story.again}</Text>
        </Card>
      </main>
      <footer>
        <details>
          <summary><span>Licenses of what draws this page</span></summary>
          <Text name="Text of the licenses">{story.licenses}</Text>
        </details>
      </footer>
    </>
  );
}

function First({ story }: { story: Story }) {
  const { figures, rounds, nodes } = story;
  const losses = nodes.flatMap(({ lossNats }) => lossNats ?? []);
  const best = losses.length > 0 ? Math.min(...losses) : null;
  const tiles: readonly (readonly [string, string, string])[] = [
    ["Nodes", String(figures.nodes), `${figures.fidelity} fidelity`],
    ["Virtual time", seconds(figures.virtual_s), `${figures.wall_s.toFixed(1)} s on the clock`],
    ["Rounds", rounds.length === 0 ? NOTHING : String(rounds.at(-1)?.height ?? 0),
      "the height that was reached"],
    ["Loss", nats(best), "held-out, nats a token, the lowest at the end"],
  ];
  const lines: readonly (readonly [string, string])[] = [
    ["Seed", String(figures.seed)],
    ["CPU", `${figures.cpu_s.toFixed(1)} s`],
    ["Trace", figures.trace_hash],
    ["Final roots", figures.roots.map((root) => root.slice(0, 16)).join(", ") || "none"],
  ];
  return (
    <section class="card now" aria-labelledby="run-title" data-tone={story.ok ? "good" : "bad"}>
      <h1 id="run-title">{story.scenario}{story.ok ? "" : ": broken"}</h1>
      <dl class="tiles">
        {tiles.map(([name, value, of]) => (
          <div key={name}><dt>{name}</dt><dd>{value}<small>{of}</small></dd></div>
        ))}
      </dl>
      <dl class="lines below">
        {lines.map(([name, value]) => (
          <div key={name}><dt>{name}</dt><dd><code>{value}</code></dd></div>
        ))}
      </dl>
    </section>
  );
}

function Invariants({ story: { invariants, sometimes } }: { story: Story }) {
  const broken = invariants.filter(({ holds }) => !holds);
  const held = invariants.filter(({ holds }) => holds);
  return (
    <Card
      id="invariants" title="What had to hold"
      aside={broken.length === 0 ? "all of it held" : `${broken.length} broken`}
    >
      <Verdicts of={broken} />
      {held.length > 0 && (
        <details open={broken.length === 0 && held.length < FEW}>
          <summary><span>{count(held.length, "invariant")} {held[0]?.verdict}</span></summary>
          <Verdicts of={held} />
        </details>
      )}
      {sometimes.length > 0 && (
        <p class="words below">
          Situations that the run was in, and how often:{" "}
          {sometimes.map(({ name, hits }) => `${name} ${hits}`).join(", ")}.
        </p>
      )}
    </Card>
  );
}

function Verdicts({ of }: { of: readonly Invariant[] }) {
  return (
    <ul class="parts">
      {of.map(({ name, holds, verdict, detail }) => (
        <li key={name}>
          <p>
            <span class={`mark ${holds ? "good" : "bad"}`}><b>{name}</b></span>
            <span class="what">{verdict}</span>
          </p>
          {detail !== "" && <p class="words">{detail}</p>}
        </li>
      ))}
    </ul>
  );
}

function Faults({ story: { faults, faultsLeftOut } }: { story: Story }) {
  if (faults.length === 0) return null;
  return (
    <Card
      id="faults" title="What was done to it" aside={count(faults.length + faultsLeftOut, "fault")}
    >
      <Rows
        caption="Table of faults" columns={["Fault", "From", "Until", "Nodes"]}
        rows={faults.map(({ kind, detail, fromMs, toMs, nodes }, at) => ({
          key: `${at}`,
          cells: [`${kind} ${detail}`.trim(), inSeconds(fromMs), inSeconds(toMs), listed(nodes)],
        }))}
      />
      <LeftOut number={faultsLeftOut} what="fault" where="the trace has all" />
    </Card>
  );
}

function Rounds({ story: { rounds, roundsLeftOut } }: { story: Story }) {
  if (rounds.length === 0) return null;
  return (
    <Card id="rounds" title="Rounds" aside="when each height was published, first and last">
      <Rows
        caption="Table of rounds"
        columns={["Height", "First", "Last", "Nodes", "Contributors", "Vertex"]}
        rows={rounds.map(({ height, firstMs, lastMs, nodes, contributors, vertices }) => ({
          key: String(height),
          cells: [
            String(height), inSeconds(firstMs), inSeconds(lastMs), String(nodes),
            String(contributors), vertices.join(", "),
          ],
        }))}
      />
      <LeftOut number={roundsLeftOut} what="older round" where="the trace has all" />
    </Card>
  );
}

function Routers({ story: { routers } }: { story: Story }) {
  if (routers.length === 0) return null;
  return (
    <Card id="routers" title="Behind routers" aside="how each such node was reached">
      <Rows
        caption="Table of nodes behind routers"
        columns={["Node", "Behind", "Got through", "In rounds", "Relays", "Relayed with nodes",
          "Punched with nodes"]}
        rows={routers.map(({ node, nat, passage, rounds, relays, relayedWith, punchedWith }) => ({
          key: String(node),
          cells: [String(node), nat, passage, String(rounds ?? "–"), String(relays),
            listed(relayedWith), listed(punchedWith)],
        }))}
      />
    </Card>
  );
}

function Measured({ story: { measured } }: { story: Story }) {
  if (measured.length === 0) return null;
  return (
    <Card id="measured" title="Measured">
      <div class="scroll" tabIndex={0} role="region" aria-label="Figures that were measured">
        <dl class="lines wide">
          {measured.map(([name, value]) => (
            <div key={name}><dt>{name}</dt><dd><code>{value}</code></dd></div>
          ))}
        </dl>
      </div>
    </Card>
  );
}

function LeftOut({ number, what, where }: { number: number; what: string; where: string }) {
  return number > 0 ? <p class="words">And {count(number, what)} more: {where}.</p> : null;
}

function Text({ name, children }: { name: string; children: ComponentChildren }) {
  return <pre class="scroll" tabIndex={0} role="region" aria-label={name}>{children}</pre>;
}

function listed(nodes: readonly number[]): string {
  return nodes.length === 0 ? "none" : nodes.join(", ");
}
