/** Who votes, and who asks to: with a button for this node's approval. */

import { useState } from "preact/hooks";
import { Card, Empty } from "./card";
import { Confirmation, type Order } from "./confirmation";
import type { Members, MembershipRequest } from "./facts";
import { count, sentence, short } from "./words";

export function MembersCard(
  { members, onDone }: { members: Members | null; onDone: () => void },
) {
  const [asked, setAsked] = useState<Order | null>(null);
  const requests = members === null ? [] : [...members.waiting, ...members.asked];
  const aside = members === null ? undefined
    : `epoch ${members.epoch}, ends after round ${(members.epoch + 1) * members.epoch_rounds}`;
  const end = (isDone: boolean): void => {
    if (isDone) onDone();
    setAsked(null);
  };
  return (
    <Card id="members" title="Members" aside={aside}>
      {members === null
        ? <Empty>Who votes stands here, and who asks to join.</Empty>
        : (
          <p class="words">
            {count(members.validators.length, "validator")} with a stake of {members.stake}; a
            quorum weighs {members.quorum}.
          </p>
        )}
      {members !== null && requests.length === 0 && (
        <Empty>Nobody asks for a change. A request to join, to leave or for another stake appears
          here, with a button to approve it.</Empty>
      )}
      <ul class="requests">
        {requests.map((request) => (
          <Request
            key={request.id} request={request} members={members}
            onApprove={() => setAsked(approvalOf(request))}
          />
        ))}
      </ul>
      {asked !== null && <Confirmation asked={asked} onEnd={end} />}
    </Card>
  );
}

function Request(
  { request, members, onApprove }: {
    request: MembershipRequest; members: Members | null; onApprove: () => void;
  },
) {
  const until = request.expires_epoch * (members?.epoch_rounds ?? 0);
  return (
    <li>
      <p class="what"><b>{sentence(request.what)}</b></p>
      <p class="words">
        {request.in_chain
          ? `In the chain; approvals weigh ${request.approved_weight} of ${members?.quorum ?? 0}.`
          : "Asked for, and not in the chain yet."}
        {" "}It lapses after round {until}. Its id begins with <code>{short(request.id)}</code>.
      </p>
      <button type="button" onClick={onApprove}>
        Approve<span class="unseen"> the request {short(request.id)}</span>
      </button>
    </li>
  );
}

function approvalOf(request: MembershipRequest): Order {
  return {
    title: "Approve this request?",
    words: `${sentence(request.what)} The approval is given in this node's name, and cannot be `
      + "taken back. The change takes effect when the epoch ends, if a quorum approves.",
    button: "Approve", path: "/v1/membership/approve", body: { id: request.id },
    isDangerous: false,
  };
}
