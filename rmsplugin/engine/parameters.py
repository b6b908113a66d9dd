"""Parameters: how proposals are made, as the settings and slurm.conf say."""

from __future__ import annotations

from rmsplugin.adapters.rms.base import RmsSnapshot
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.settings import Settings


def proposal_parameters(settings: Settings, rms: RmsSnapshot) -> ProposalParameters:
    """How to decide, to place and to estimate."""
    return ProposalParameters("mixed", shared_store=settings.nodes.shared_store is not None)
