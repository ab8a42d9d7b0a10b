"""The three ways a run can end badly, and nothing else.

``ConfigError``        the user has to set something (exit code 2)
``TransportError``     the tool, a process or the network broke (exit code 20)
``VerificationError``  a file or a server is not what it must be (exit code 10 or 11, by the check that raised it)

A message says what was found, what was expected, in which state the server is and what to do next.
"""

from __future__ import annotations


class VstError(Exception):
    """Base of all errors that are reported without a traceback."""


class ConfigError(VstError):
    """The configuration is wrong or incomplete; nothing was started."""


class TransportError(VstError):
    """A process, a connection or a deadline broke; the evidence is missing, not false."""


class VerificationError(VstError):
    """Something was read and is not what it must be."""
