# SPDX-License-Identifier: Apache-2.0
"""The driver's logging, as far as workers begin with the same: the levels of its loggers, and the
stream handlers of the root logger. Handlers that write elsewhere, filters and formatters of other
classes stay in the driver."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import logging

Handler = tuple[int, int, tuple[str, str | None, str] | None]  # stream, level, format
Setup = tuple[int, int, dict[str, int], list[Handler]]  # disabled below, root, by name, handlers


def describe() -> Setup | None:
    """In the driver; None if it has not imported logging."""
    logging = sys.modules.get("logging")
    if logging is None:
        return None
    levels = {name: logger.level for name, logger in logging.root.manager.loggerDict.items()
              if isinstance(logger, logging.Logger) and logger.level}
    handlers = [made for h in logging.root.handlers if (made := _describe_handler(h))]
    return logging.root.manager.disable, logging.root.level, levels, handlers


def _describe_handler(h: Any) -> Handler | None:
    import logging
    number = {id(sys.stdout): 1, id(sys.__stdout__): 1, id(sys.stderr): 2,
              id(sys.__stderr__): 2}.get(id(getattr(h, "stream", None)))
    if type(h) is not logging.StreamHandler or number is None:
        return None
    f = h.formatter
    styles: dict[Any, str] = {kind: mark for mark, (kind, _) in logging._STYLES.items()}
    if f is None:
        return number, h.level, None
    if type(f) is not logging.Formatter or type(f._style) not in styles:
        return None
    return number, h.level, (f._style._fmt, f.datefmt, styles[type(f._style)])


_ours: list[logging.Handler] = []  # handlers that this worker has of its driver


def take(setup: Setup | None) -> None:
    """In a worker, before its function is called. A root logger that has handlers of its own, by
    a hook perhaps, keeps them."""
    if setup is None:
        return
    import logging
    disabled, root, levels, handlers = setup
    logging.disable(disabled)
    logging.root.setLevel(root)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    for old in _ours:
        logging.root.removeHandler(old)
    _ours.clear()
    if not logging.root.handlers:
        _ours.extend(_make_handler(h) for h in handlers)
        for new in _ours:
            logging.root.addHandler(new)


def _make_handler(made: Handler) -> logging.Handler:
    import logging
    number, level, how = made
    handler = logging.StreamHandler(sys.stdout if number == 1 else sys.stderr)
    handler.setLevel(level)
    if how is not None:
        text, date, style = how
        handler.setFormatter(logging.Formatter(text, date, style))  # type: ignore[arg-type]
    return handler
