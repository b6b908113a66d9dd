"""Fronts: wrappers are silent only where their host could have been heard of all the while."""

from __future__ import annotations

from rmsplugin.engine.context.fronts import OVERDUE_S, Fronts


class Network:
    """A clock, and fronts that answer or do not."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.away: set[str] = set()
        self.knocked: list[tuple[str, int]] = []
        self.fronts = Fronts(lambda: self.time, self.knock)

    def knock(self, host: str, port: int) -> bool:
        self.knocked.append((host, port))
        return host not in self.away

    def pass_time(self, seconds: float, *names: str) -> None:
        """Time in which these fronts are watched, and knocked at each second."""
        for _ in range(int(seconds)):
            self.time += 1.0
            self.fronts.watch({name: (name, 6818) for name in names})
            self.fronts.knock_at_all()


def test_silence_counts_where_its_front_answers_for_as_long_as_two_signs_take() -> None:
    network = Network()
    assert network.fronts.silent_s("f1", 40.0, network.time) == 0.0, "nobody has knocked there"
    network.pass_time(10, "f1")
    assert network.fronts.silent_s("f1", 50.0, network.time) == 0.0
    network.pass_time(11, "f1")
    assert network.fronts.silent_s("f1", 61.0, network.time) == 61.0
    assert network.fronts.silent_s("f2", 61.0, network.time) == 0.0


def test_silence_counts_from_the_last_knock_without_an_answer() -> None:
    network = Network()
    network.pass_time(30, "f1", "f2")
    network.away = {"f1"}
    network.pass_time(15, "f1", "f2")
    assert network.fronts.silent_s("f1", 60.0, network.time) == 0.0
    assert network.fronts.silent_s("f2", 60.0, network.time) == 60.0
    network.away = set()
    network.pass_time(25, "f1", "f2")
    assert network.fronts.silent_s("f1", 90.0, network.time) == 25.0
    assert network.fronts.silent_s("f1", 21.0, network.time) == 21.0, "another one was heard of since"


def test_nobody_knocks_where_all_wrappers_are_heard_of() -> None:
    network = Network()
    network.fronts.watch({})
    network.fronts.knock_at_all()
    assert not network.knocked
    assert network.fronts.silent_s("f1", OVERDUE_S, network.time) == OVERDUE_S
    network.away = {"f1"}
    network.pass_time(5, "f1")
    network.pass_time(1)
    network.away = set()
    network.pass_time(21, "f1")
    assert network.fronts.silent_s("f1", 60.0, network.time) == 60.0, "what was before it was heard of is over"


def test_without_a_way_to_knock_silence_is_what_it_is() -> None:
    fronts = Fronts(lambda: 0.0)
    fronts.watch({"f1": ("f1", 6818)})
    fronts.knock_at_all()
    assert fronts.silent_s("f1", 60.0, 0.0) == 60.0
