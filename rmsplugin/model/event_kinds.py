"""Event kinds: the words that events are called by, so that one who chooses by a word that none has is told so.

Written out, since a command loads them; a test compares them with what the engine records.
"""

from __future__ import annotations

from collections.abc import Mapping

#: What events are about -> their kinds.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "states of vjobs": (
        *("vjob-waiting", "vjob-starting", "vjob-running", "vjob-pausing", "vjob-paused", "vjob-unpausing"),
        *("vjob-suspending", "vjob-sleeping", "vjob-resuming", "vjob-stopping", "vjob-terminated"),
    ),
    "operations that failed": (
        *("start-failed", "stop-failed", "suspend-failed", "resume-failed", "migrate-failed", "pause-failed"),
        *("unpause-failed", "checkpoint-failed", "reattach-failed", "go-on-failed", "restart-failed"),
        "relocate-failed",
    ),
    "vjobs": (
        *("account", "aside-dropped", "checkpoint", "checkpoint-unusable", "clock-not-set", "confirmed", "copy-ended"),
        *("end-told", "ended-before", "handed-over", "held-back", "held-back-no-more", "hold-refused", "let-run"),
        *("lost", "memory-short", "migrated", "not-a-vjob", "not-entered", "not-taken-back", "opening-refused"),
        *("paused-together", "preferred", "priority-changed", "put-aside", "reattached", "relocated", "requeue"),
        *("requeue-asked", "requeue-exit", "requeue-failed", "requeue-refused", "resize", "resize-failed", "resized"),
        *("script-ended", "script-runs-on", "script-started", "script-unknown", "stands-still", "start-forgotten"),
        *("state-lost", "suspend-refused", "taken-back", "taken-over", "unpaused-together", "went-back"),
    ),
    "context switches": (
        *("cluster-full", "context-switch", "context-switch-ended", "no-context-switch", "paused", "quiet-hours"),
        *("step-done", "step-failed", "step-needless", "step-skipped", "unpaused"),
    ),
    "nodes": (
        *("balloon", "node-answers", "node-back", "node-cool", "node-emptied", "node-fence", "node-fence-failed"),
        *("node-gone", "node-hot", "node-released", "node-reserved", "node-rests", "node-silent", "node-works-again"),
        *("power-failed", "power-intended", "power-off", "power-on", "stray-stopped", "template-failed"),
        "template-made",
    ),
    "rooms of VM hosts": (
        *("gate-reserved", "room-epilog", "room-extended", "room-given-back", "room-gone", "room-prolog"),
        "room-requested",
    ),
    "neighbours": (
        *("slurmctld-answers", "slurmctld-silent", "slurmdbd-answers", "slurmdbd-silent", "store-answers"),
        *("store-back", "store-missing", "store-renewed", "store-set-up", "store-silent"),
    ),
    "the schedule": ("durations-measured", "durations-proposed", "schedule-failed", "schedule-interrupted"),
}

KINDS = frozenset(kind for kinds in GROUPS.values() for kind in kinds)
