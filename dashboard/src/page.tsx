/** The whole page: who it is, what happens now, and a card for each thing that is worth a look. */

import { useEffect, useMemo, useState } from "preact/hooks";
import icon from "../../wasm_worker/src/icon.svg";
import { Checkpoints } from "./checkpoints";
import { ComparisonCard } from "./comparison_card";
import { componentsOf } from "./components";
import { Contributions } from "./contributions";
import { Controls } from "./controls";
import { DecisionsCard } from "./decisions_card";
import { HealthCard } from "./health_card";
import { LogCard } from "./log_card";
import { LossCard } from "./loss_card";
import { MembersCard } from "./members_card";
import { NodeLossesCard } from "./node_losses_card";
import { announcement, nowOf } from "./now";
import { NowCard } from "./now_card";
import { PeersCard } from "./peers_card";
import { RoundsCard } from "./rounds_card";
import { SettingsCard } from "./settings_card";
import { SignIn } from "./sign_in";
import { NOTHING_KNOWN, type Link, type State } from "./state";
import { Store } from "./store";
import { TopologyCard } from "./topology_card";
import { givenIn, keepToken, tabStorage } from "./token";
import { short } from "./words";

const TICK_MS = 1_000;
const BRAND = "daa-compute";

/** `take` gives the token that this tab goes by, and takes one out of the address. */
export function Page({ take }: { take: () => string | null }) {
  const [entry, setEntry] = useState(() => ({ token: take() }));
  const [state, setState] = useState<State>(NOTHING_KNOWN);
  const [store, setStore] = useState<Store | null>(null);
  const { token } = entry;
  useEffect(() => {
    if (token === null) return;
    const made = new Store(token, setState);
    setStore(made);
    made.start();
    return () => made.end();
  }, [entry]); // a token that is given once more is tried once more
  const enter = (given: string | null): void => {
    setState(NOTHING_KNOWN);
    setEntry({ token: given });
  };
  useEffect(() => {
    // an address with another token, opened in this tab, loads nothing anew
    const look = (): void => {
      if (givenIn(location.hash) !== null) enter(take());
    };
    addEventListener("hashchange", look);
    return () => removeEventListener("hashchange", look);
  }, []);
  const isRefused = state.link.at === "refused";
  if (token === null || isRefused) {
    return (
      <>
        <Header state={null} />
        <SignIn
          wasRefused={isRefused}
          onToken={(given) => {
            keepToken(given, tabStorage());
            enter(given);
          }}
        />
      </>
    );
  }
  return <Node state={state} store={store} />;
}

function Node({ state, store }: { state: State; store: Store | null }) {
  const nowS = useNowS() - state.aheadS; // by the daemon's clock, as its events are
  const now = nowOf(state, nowS);
  const said = announcement(state, now);
  const components = useMemo(
    () => (state.status === null ? [] : componentsOf(state.status, state.peers ?? [])),
    [state.status, state.peers],
  );
  const me = state.status?.node_id ?? "";
  useEffect(() => {
    document.title = [now.chip, short(me), BRAND].filter((part) => part !== "").join(" \u00b7 ");
  }, [now.chip, me]);
  return (
    <>
      <a class="skip" href="#main">To the content</a>
      <Header state={state} />
      <main id="main">
        <h1 class="unseen">A node of daa-compute</h1>
        <p class="unseen" role="status">{said}</p>
        <NowCard state={state} now={now} />
        <div class="columns">
          <div>
            <LossCard rounds={state.rounds} walks={state.walks} />
            <NodeLossesCard losses={state.losses} />
            <RoundsCard walks={state.walks} nowS={nowS} me={me} />
            <TopologyCard peers={state.peers} roundTrips={state.roundTrips} />
            <PeersCard state={state} nowS={nowS} />
            <ComparisonCard
              baseline={state.baseline} rounds={state.rounds} walks={state.walks}
            />
            <Contributions state={state} />
            <Checkpoints state={state} me={me} />
          </div>
          <div>
            <HealthCard components={components} />
            <Controls status={state.status} onDone={() => store?.refresh("status")} />
            <MembersCard members={state.members} onDone={() => store?.refresh("members")} />
            <SettingsCard
              settings={state.settings} onDone={() => store?.refresh("settings")}
            />
          </div>
        </div>
        <DecisionsCard lines={state.decisions} />
        <LogCard events={state.events} link={state.link} />
      </main>
      <Footer state={state} />
    </>
  );
}

const LINKS: Readonly<Record<Link["at"], readonly [shape: string, words: string]>> = {
  connecting: ["waits", "Connecting"],
  live: ["good", "Live"],
  asking: ["good", "Live, by asking each second"],
  away: ["bad", "No answer, trying again"],
  refused: ["bad", "Token refused"],
};

function Header({ state }: { state: State | null }) {
  const status = state?.status ?? null;
  const [shape, words] = LINKS[state?.link.at ?? "connecting"];
  return (
    <header>
      <p class="brand"><img src={icon} alt="" width="28" height="28" />{BRAND}</p>
      {status !== null && (
        <p class="who">
          <span class="unseen">This node: </span>
          <code title={status.node_id}>{short(status.node_id)}</code>
          {" "}{status.part}
        </p>
      )}
      {state !== null && <p class={`link mark ${shape}`}>{words}</p>}
    </header>
  );
}

function Footer({ state: { status } }: { state: State }) {
  if (status === null) return null;
  return (
    <footer>
      <p>Chain <code>{status.chain_id}</code></p>
      <p>Node <code>{status.node_id}</code></p>
    </footer>
  );
}

/** Seconds since 1970, anew each second while somebody looks. */
function useNowS(): number {
  const [nowS, setNowS] = useState(Date.now() / 1_000);
  useEffect(() => {
    const timer = setInterval(() => {
      if (!document.hidden) setNowS(Date.now() / 1_000);
    }, TICK_MS);
    return () => clearInterval(timer);
  }, []);
  return nowS;
}
