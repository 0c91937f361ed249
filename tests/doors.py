"""A contract for import-linter: rooms have doors, and nobody comes in by a window."""

from __future__ import annotations

import grimp
from importlinter.application import output
from importlinter.domain.contract import Contract, ContractCheck


class Doors(Contract):
    """No room imports a private module of another: what others may use is in the room's `__init__`."""

    def check(self, graph: grimp.ImportGraph, verbose: bool) -> ContractCheck:
        crossings = sorted(
            f"{importer} imports {imported}"
            for importer in graph.modules
            for imported in graph.find_modules_directly_imported_by(importer)
            if crosses(importer, imported)
        )
        return ContractCheck(kept=not crossings, metadata={"crossings": crossings})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for crossing in check.metadata["crossings"]:
            output.print_error(crossing)


def crosses(importer: str, imported: str) -> bool:
    """Tell whether an import goes into another room's private module.

    >>> crosses("treecal.keyed.local", "treecal.engine._bank"), crosses("treecal.engine._run", "treecal.engine._bank")
    (True, False)
    """
    _, room, *rest = imported.split(".") if "." in imported else (imported, "")
    return any(part.startswith("_") for part in rest) and importer.split(".")[1:2] != [room]
