"""Check a journal of acts: did two act at once, did an engine act after its turn, ran a vjob twice, was one lost?

    python -m journal.check FILE...

It shares no code with what it checks, and knows nothing of it but the journal: lines of JSON, with these kinds.

lead    who, epoch, begin, end: this engine may act in that time, by its own word
act     who, epoch, asked, begin, end, outcome, where, what, vm, vjob, nodes: an engine asked for it at ``asked``, the
        neighbour (``hypervisor``, ``agent``, ``rms`` or ``guests``) began it at ``begin`` (null: it did not) and
        ended it at ``end`` (null: never); the vjob is null, and the VM empty, for what concerns nodes alone
vm      time, vjob, vm, node, is: the VM is now ``running``, ``standing`` or ``gone`` there, or was ``killed``
script  time, vjob, is: it ``begins``, or ``ends``
vjob    time, vjob, is: it is ``submitted``, ``cancelled``, or ``ended``
given   time, who, epoch, serial, vjobs: a leader of managers has written where vjobs are (group, and the one wished)
took    time, of, epoch, serial: the engine of this group follows that text
over    time: nothing follows

``of`` in the first three kinds is the group whose engine, or node, it is; there is none where there are no groups.

Owning is a register for each vjob and each node, whose value is an epoch that never falls. An act is a write of its
epoch at some instant between its begin and its end. Such a history is linearizable exactly if no act of an epoch begins
after one of a higher epoch has ended: the order by epochs is then one that agrees with time. What is required here is
more: an act must not begin once one of a higher epoch has *begun*, nor while one of a lower epoch is under way.
Guests know no epochs, and a node knows none that nobody could tell it. An engine that was stopped between its look at
the clock and its act still acts there; this is counted, and is no breach: a VM must not run twice by it. Slurm knows
none either; but a command there looks at the clock itself, and ends by itself, so nothing is late there.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

Entry = dict[str, Any]

#: Neighbours that compare epochs.
_FENCED = {"hypervisor", "agent"}
#: What a new owner may do to a VM with which an act of the one before is under way: end either.
_ENDS_OTHERS = {"abort_job", "stop"}


@dataclass
class Findings:
    """What a journal shows."""

    breaches: list[str] = field(default_factory=list)
    late: int = 0  # acts that a deposed engine had begun in a guest
    unheard: int = 0  # acts of a deposed engine on nodes that had not heard of the next one
    refused: int = 0  # acts that a neighbour refused, because its engine was deposed
    acts: int = 0
    turns: int = 0
    gap_s: float = 0.0  # the longest time in which nobody led


def check(lines: Iterable[str]) -> Findings:
    """Read a journal and judge it."""
    entries: dict[str, list[Entry]] = defaultdict(list)
    for line in lines:
        entry = json.loads(line)
        entries[entry["kind"]].append(entry)
    found = Findings(acts=len(entries["act"]), turns=len({lead["epoch"] for lead in entries["lead"]}))
    found.refused = sum(act["outcome"] == "refused" for act in entries["act"])
    for leads in _by_group(entries["lead"]).values():
        found.breaches += _turns(leads, found)
    found.breaches += _asked_in_turn(entries["act"], entries["lead"])
    _owners(entries["act"], found)
    found.breaches += _runs_once(entries["vm"])
    found.breaches += _in_one_group(entries["vm"])
    found.breaches += _one_word(entries["given"])
    found.breaches += _words_followed(entries["given"], entries["took"])
    found.breaches += _begins_once(entries["script"], entries["vm"])
    if entries["over"]:
        found.breaches += _none_lost(entries["vjob"], entries["script"])
    return found


def _by_group(entries: list[Entry]) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        found[entry.get("of", "")].append(entry)
    return found


def _in_one_group(vms: list[Entry]) -> Iterator[str]:
    """The VMs of a vjob are on nodes of one group at a time."""
    there: dict[int, set[tuple[str, str, str]]] = defaultdict(set)
    for entry in vms:
        places = there[entry["vjob"]]
        place = (entry.get("of", ""), entry["node"], entry["vm"])
        (places.add if entry["is"] in ("running", "standing") else places.discard)(place)
        if len({group for group, _, _ in places}) > 1:
            yield f"vjob {entry['vjob']} is two groups' at {entry['time']:.1f}: {sorted(places)}"


def _one_word(given: list[Entry]) -> Iterator[str]:
    """Texts of an epoch are of one leader, and no two of one number differ."""
    who: dict[int, str] = {}
    texts: dict[tuple[int, int], Entry] = {}
    for entry in given:
        if who.setdefault(entry["epoch"], entry["who"]) != entry["who"]:
            yield f"{entry['who']} and {who[entry['epoch']]} have both decided in epoch {entry['epoch']}"
        first = texts.setdefault((entry["epoch"], entry["serial"]), entry)
        if first["vjobs"] != entry["vjobs"]:
            yield f"text {entry['serial']} of epoch {entry['epoch']} is two texts"


def _words_followed(given: list[Entry], took: list[Entry]) -> Iterator[str]:
    """No group goes back, and each leader goes on from all that any group has followed of leaders before it."""
    texts = {(entry["epoch"], entry["serial"]): entry for entry in given}
    last: dict[str, tuple[int, int]] = {}
    highest: dict[int, int] = {}  # by epoch, the highest number that anybody has followed
    for entry in took:
        version = (entry["epoch"], entry["serial"])
        if version not in texts:
            yield f"group {entry['of']} follows text {version[1]} of epoch {version[0]}, which nobody has written"
        if version < last.get(entry["of"], (0, 0)):
            yield f"group {entry['of']} goes back to text {version[1]} of epoch {version[0]}"
        last[entry["of"]] = version
        highest[version[0]] = max(highest.get(version[0], 0), version[1])
    for epoch in sorted(highest):
        begun = texts.get((epoch, 0))
        before = max((each for each in highest if each < epoch), default=None)
        if begun is None or before is None:
            continue
        later = [text for key, text in texts.items() if (before, highest[before]) <= key < (epoch, 0)]
        if all(text["vjobs"] != begun["vjobs"] for text in later):
            yield f"the leader of epoch {epoch} does not go on from text {highest[before]} of epoch {before}"


def _turns(leads: list[Entry], found: Findings) -> Iterator[str]:
    """Turns do not overlap, each is of one engine, and epochs grow."""
    turns: dict[int, Entry] = {}
    for lead in leads:
        turn = turns.setdefault(lead["epoch"], dict(lead))
        if turn["who"] != lead["who"]:
            yield f"epoch {lead['epoch']} is that of {turn['who']} and of {lead['who']}"
        turn["begin"] = min(turn["begin"], lead["begin"])
        turn["end"] = max(turn["end"], lead["end"])
    in_time = sorted(turns.values(), key=lambda turn: turn["begin"])
    found.gap_s = max(found.gap_s, _longest_gap_s(leads))
    for before, after in pairwise(in_time):
        if after["epoch"] <= before["epoch"]:
            yield f"epoch {after['epoch']} of {after['who']} comes after {before['epoch']}"
        if after["begin"] < before["end"]:
            yield (
                f"{before['who']} ({before['epoch']}) and {after['who']} ({after['epoch']}) may both act at "
                f"{after['begin']:.1f}"
            )


def _longest_gap_s(leads: list[Entry]) -> float:
    """The longest time in which nobody might act, within turns, too: an engine whose lease ran out stands still."""
    longest, until = 0.0, None
    for lead in sorted(leads, key=lambda lead: lead["begin"]):
        longest = longest if until is None else max(longest, lead["begin"] - until)
        until = lead["end"] if until is None else max(until, lead["end"])
    return longest


def _asked_in_turn(acts: list[Entry], leads: list[Entry]) -> Iterator[str]:
    """An engine asks for something only while it may act."""
    mine: dict[tuple[str, int], list[Entry]] = defaultdict(list)
    for lead in leads:
        mine[lead["who"], lead["epoch"]].append(lead)
    for act in acts:
        turns = mine[act["who"], act["epoch"]]
        if not any(lead["begin"] <= act["asked"] < lead["end"] for lead in turns):
            yield f"{_said(act)}: its engine did not lead when it asked for it"


def _owners(acts: list[Entry], found: Findings) -> None:
    """Of each vjob and each node: who acts is never of a lower epoch than who acted before."""
    registers: dict[tuple[str, Any], list[Entry]] = defaultdict(list)  # by kind and name
    for act in acts:
        if act["begin"] is None:
            continue
        if act["vjob"] is not None:
            # Epochs of two groups are not compared: a vjob that no group has begun goes from one to the other.
            registers["vjob", (act.get("of", ""), act["vjob"])].append(act)
        if act["where"] in _FENCED:
            for node in act["nodes"]:
                registers["node", node].append(act)
    late: set[int] = set()
    unheard: set[int] = set()
    for (what, _), history in list(registers.items()):
        history.sort(key=lambda act: (act["begin"], act["epoch"]))
        highest: Entry | None = None
        for act in history:
            if highest is None or act["epoch"] >= highest["epoch"]:
                highest = act
            elif act["where"] == "rms":
                found.breaches.append(f"{_said(act)} was begun, after {_said(highest)}")
            elif act["where"] not in _FENCED:
                late.add(id(act))
            elif any(_has_heard(node, act, registers) for node in act["nodes"]):
                found.breaches.append(f"{_said(act)} was let do, after {_said(highest)}")
            else:
                unheard.add(id(act))
        if what == "vjob":
            found.breaches += _one_at_a_time(history)
    found.late, found.unheard = len(late), len(unheard)


def _has_heard(node: str, act: Entry, registers: dict[tuple[str, Any], list[Entry]]) -> bool:
    """Whether a higher epoch than the act's had acted on the node before it."""
    return any(other["epoch"] > act["epoch"] and other["begin"] <= act["begin"] for other in registers["node", node])


def _one_at_a_time(history: list[Entry]) -> Iterator[str]:
    """No engine acts on a VM of a vjob while an act of an earlier one on the vjob is under way."""
    under_way: list[Entry] = []
    for act in (act for act in history if act["where"] == "hypervisor"):
        under_way = [each for each in under_way if each["end"] is None or each["end"] > act["begin"]]
        for other in under_way:
            at_once = act["outcome"] == "done" == other["outcome"] and act["what"] not in _ENDS_OTHERS
            if at_once and act["epoch"] != other["epoch"] and act["vm"] == other["vm"]:
                yield f"{_said(act)} while {_said(other)} is under way"
        under_way.append(act)


def _runs_once(vms: list[Entry]) -> Iterator[str]:
    """A VM runs on one node at a time."""
    runs_on: dict[str, set[str]] = defaultdict(set)
    for entry in vms:
        nodes = runs_on[entry["vm"]]
        (nodes.add if entry["is"] == "running" else nodes.discard)(entry["node"])
        if len(nodes) > 1:
            yield f"{entry['vm']} runs on {sorted(nodes)} at {entry['time']:.1f}"


def _begins_once(scripts: list[Entry], vms: list[Entry]) -> Iterator[str]:
    """A script begins once, and once more for each time that a VM of its vjob was killed by no engine."""
    began, killed = (Counter[int](), Counter[int]())
    for entry in scripts:
        began[entry["vjob"]] += entry["is"] == "begins"
    for entry in vms:
        killed[entry["vjob"]] += entry["is"] == "killed"
    for vjob, times in began.items():
        if times > 1 + killed[vjob]:
            yield f"the script of vjob {vjob} began {times} times, and {killed[vjob]} of its VMs were killed"


def _none_lost(vjobs: list[Entry], scripts: list[Entry]) -> Iterator[str]:
    """Each vjob has run and ended, but for those that a person has cancelled."""
    said: dict[int, Counter[str]] = defaultdict(Counter)
    for entry in vjobs:
        said[entry["vjob"]][entry["is"]] += 1
    ran = Counter(entry["vjob"] for entry in scripts if entry["is"] == "ends")
    for vjob, words in said.items():
        if not words["cancelled"] and (words["ended"] != 1 or ran[vjob] != 1):
            yield f"vjob {vjob} is lost: it ended {words['ended']} times, its script {ran[vjob]} times"


def _said(act: Entry) -> str:
    of = f" of vjob {act['vjob']}" if act["vjob"] is not None else ""
    at = f" at {act['begin']:.1f}" if act["begin"] is not None else f", asked at {act['asked']:.1f}"
    return f"{act['what']}{of} on {', '.join(act['nodes']) or act['where']}{at} by {act['who']} ({act['epoch']})"


def main(paths: list[str]) -> int:
    """Judge journals; 1 if one shows a breach."""
    if not paths:
        print("usage: python -m journal.check FILE...", file=sys.stderr)
        return 2
    wrong = 0
    for path in paths:
        try:
            with Path(path).open() as lines:
                found = check(lines)
        except (OSError, ValueError, KeyError, TypeError) as error:
            print(f"{path} is no journal of acts: {error!r}", file=sys.stderr)
            return 2
        counts = f"{found.acts} acts in {found.turns} turns, {found.refused} refused, {found.late} late in guests"
        counts += f", {found.unheard} unheard"
        print(f"{path}: {counts}: {len(found.breaches) or 'no'} breaches")
        for breach in found.breaches:
            print(f"    {breach}")
        wrong += bool(found.breaches)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
