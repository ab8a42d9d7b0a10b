"""What a verification found: everything that does not hold, in the order in which it was looked at."""

from __future__ import annotations

from dataclasses import dataclass, field

EXIT_HOLDS, EXIT_BROKEN, EXIT_USAGE = 0, 10, 2


@dataclass(frozen=True)
class Finding:
    """Something that does not hold: the file, check or link, and what is wrong with it."""

    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


@dataclass
class Report:
    """The result of one verification; ``notes`` do not change it, ``incomplete`` says why it has no end."""

    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    incomplete: str | None = None
    files: int = 0
    rejudged: int = 0
    verdict: str = "no verdict"

    @property
    def holds(self) -> bool:
        return not self.findings and self.incomplete is None

    @property
    def exit_code(self) -> int:
        return EXIT_HOLDS if self.holds else EXIT_BROKEN

    def wrong(self, name: str, text: str) -> None:
        self.findings.append(Finding(name, text))

    def lines(self) -> list[str]:
        """The report as text: the first line is the answer."""
        if self.holds:
            judged = f", {self.rejudged} checks judged again" if self.rejudged else ""
            lines = [f"verified: {self.files} files and their sidecars hold, {self.verdict}{judged}"]
        elif self.findings:
            lines = [f"does not hold: {self.findings[0]}"]
            lines += [f"  also: {finding}" for finding in self.findings[1:]]
        else:
            lines = []
        if self.incomplete is not None:
            story = f"incomplete: {self.incomplete}"
            if not self.findings:
                story += f"; the {self.files} files that have a sidecar are what it says"
            lines.insert(0 if not self.findings else len(lines), story)
        return [*lines, *(f"  note: {note}" for note in self.notes)]
