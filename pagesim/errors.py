"""Every error that a user can cause.

    PagesimError             exit code
    ├── InputError            2   a file, a key or a number is wrong
    │   ├── TraceError            … in a trace:   trace.csv:1874: output tokens must be a whole number, got '12.5'
    │   └── ConfigError           … in a config:  bad.yaml:8:5: unknown key 'block_sise'; did you mean 'block_size'?
    ├── MissingExtra          3   a GPU or an optional package is needed
    └── Interrupted         130   Ctrl-C or SIGTERM, on the command line

A message says where, what was given, what is allowed and the way out.  A library caller catches ``PagesimError``;
the command line prints the message without a traceback.
"""


class PagesimError(Exception):
    exit_code = 1


class InputError(PagesimError, ValueError):
    exit_code = 2


class TraceError(InputError):
    pass


class ConfigError(InputError):
    pass


class MissingExtra(PagesimError, ImportError):
    exit_code = 3


class Interrupted(PagesimError):
    exit_code = 130
