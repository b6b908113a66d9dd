"""Wishes: what users asked for their VMs beside each other (--wishes), and the switches of the nodes (--topology)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from rmsplugin.errors import WorkloadError
from rmsplugin.input_file import blocks, named
from rmsplugin.model.wording import counted
from rmsplugin.simulation.capacity import Cluster
from rmsplugin.workload.jobs import Job
from rmsplugin.workload.topology_file import read_switches
from rmsplugin.workload.wishes_file import read_wishes


def wishing(arguments: argparse.Namespace, jobs: Sequence[Job]) -> list[Job]:
    """The jobs, each with the wishes that the replay keeps: those of the file, else its own; none without --wishes.

    Raises:
        WorkloadError: the file cannot be read, has something wrong in it, or names no job of these.
    """
    if arguments.wishes is None:
        return [job._replace(wishes=frozenset(), switches=0) if job.wishing else job for job in jobs]
    if not arguments.wishes:
        return list(jobs)
    with named(arguments.wishes, WorkloadError):
        said = read_wishes(b"".join(blocks(arguments.wishes, WorkloadError, "list of wishes")).decode())
        if said.keys().isdisjoint(job.job_id for job in jobs):
            raise WorkloadError("names no job that is simulated")
    return [job._replace(**said[job.job_id]._asdict()) if job.job_id in said else job for job in jobs]


def switches_of(arguments: argparse.Namespace, cluster: Cluster) -> tuple[frozenset[str], ...]:
    """The nodes of each leaf switch; none without --topology.

    Raises:
        WorkloadError: the file cannot be read, has something wrong in it, or names nodes that are not simulated.
    """
    if arguments.topology is None:
        return ()
    nodes = cluster.node_names
    with named(arguments.topology, WorkloadError):
        found = read_switches(b"".join(blocks(arguments.topology, WorkloadError, "topology")).decode())
        if unknown := sorted(frozenset().union(*found).difference(nodes)):
            raise WorkloadError(f"there is no node {unknown[0]}; they are {nodes[0]} to {nodes[-1]}")
    return found


def idle_wishes(arguments: argparse.Namespace, read: Sequence[Job], kept: Sequence[Job]) -> list[str]:
    """What the options leave without effect, each in a sentence.

    Args:
        arguments: of the command.
        read: the jobs of the workload, with their own wishes.
        kept: the jobs that are simulated, with the wishes that are kept.
    """
    asking = sum(bool(job.switches) for job in kept)
    found = []
    if arguments.wishes is None and (number := sum(job.wishing for job in read)):
        found.append(f"wishes of {counted(number, 'job')} about VMs beside each other are not kept: add --wishes")
    if arguments.topology is not None and not asking:
        found.append("no job that is simulated asks for switches, so --topology says nothing")
    if arguments.topology is None and asking:
        found.append(f"{counted(asking, 'job')} asked for --switches, and all nodes are on one switch: add --topology")
    return found
