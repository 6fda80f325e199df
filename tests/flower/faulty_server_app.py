"""The ServerApp of the example, whose clock jumps once only the silent site is missing.

Takes the place of ``scanners/server_app.py`` in a copy of the example. All others have
as long as they need, on a slow machine too, and nobody waits for what never comes.
"""

import time

from flwr.serverapp import ServerApp
from scanners.task import MODEL

from skslot.flower import _server, make_server_app


class Clock:
    """What ``skslot.flower`` uses of ``time``."""

    ahead = 0.0
    sleep = staticmethod(time.sleep)

    def monotonic(self):
        return time.monotonic() + self.ahead


class HurriedGrid:
    """A grid that sets the clock past the deadline of the silent node."""

    def __init__(self, grid, silent, timeout):
        self.grid, self.silent, self.timeout = grid, silent, timeout
        self.in_vain = set()

    def __getattr__(self, name):
        return getattr(self.grid, name)

    def push_messages(self, messages):
        messages = list(messages)
        ids = list(self.grid.push_messages(messages))
        for message_id, message in zip(ids, messages, strict=True):
            if str(message.metadata.dst_node_id) == self.silent:
                self.in_vain.add(message_id)
        return ids

    def pull_messages(self, message_ids):
        replies = list(self.grid.pull_messages(message_ids))
        answered = {reply.metadata.reply_to_message_id for reply in replies}
        if set(message_ids) - answered == self.in_vain:
            clock.ahead = self.timeout
        return replies


clock = _server.time = Clock()
inner = make_server_app(MODEL)
app = ServerApp()


@app.main()
def main(grid, context):
    config = context.run_config
    inner(HurriedGrid(grid, config["silent"], config["timeout"]), context)
