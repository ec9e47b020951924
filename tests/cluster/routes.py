"""The routes between NATS servers, each over a relay of its own, so that a server can be cut from the others while it keeps its clients."""

import selectors
import socket
import threading

PIECE_BYTES = 1 << 16
# Nobody listens there.
NOBODY = 1


class Relay:
    """Relays connections from a port of loopback to another one, unless it is cut."""

    def __init__(self, target):
        self.target = target
        self.is_cut = False
        self.lock = threading.Lock()
        self.pairs = set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.carry, args=(near,), daemon=True).start()

    def carry(self, near):
        try:
            far = socket.create_connection(("127.0.0.1", self.target), timeout=1)
        except OSError:
            near.close()
            return
        far.settimeout(None)
        with self.lock:
            is_cut = self.is_cut
            self.pairs.add((near, far))
        if not is_cut:
            self.copy(near, far)
        with self.lock:
            self.pairs.discard((near, far))
        near.close()
        far.close()

    def copy(self, near, far):
        with selectors.DefaultSelector() as selector:
            selector.register(near, selectors.EVENT_READ, far)
            selector.register(far, selectors.EVENT_READ, near)
            while True:
                for key, _ in selector.select():
                    try:
                        piece = key.fileobj.recv(PIECE_BYTES)
                        if not piece:
                            return
                        key.data.sendall(piece)
                    except OSError:
                        return

    def cut(self):
        with self.lock:
            self.is_cut = True
            for pair in self.pairs:
                for one in pair:
                    try:
                        one.shutdown(socket.SHUT_RDWR)
                    except OSError:
                        pass

    def heal(self):
        with self.lock:
            self.is_cut = False

    def close(self):
        self.cut()
        # A thread that accepts would keep the port.
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()


class Routes:
    """The relays of a cluster: one from each server to each other one."""

    def __init__(self, servers):
        pairs = [(near, far) for near in servers for far in servers if near is not far]
        self.relays = {(near.name, far.name): Relay(far.cluster) for near, far in pairs}
        for near in servers:
            # Servers tell each other how to reach the others, and must not get around the relays.
            near.cluster_options = ["--cluster_advertise", f"127.0.0.1:{NOBODY}"]
            near.routes = [f"nats://127.0.0.1:{relay.port}" for (name, _), relay in self.relays.items() if name == near.name]

    def of(self, server):
        return [relay for names, relay in self.relays.items() if server.name in names]

    def cut(self, server):
        """No other server reaches it, and it reaches none."""
        for relay in self.of(server):
            relay.cut()

    def heal(self, server):
        for relay in self.of(server):
            relay.heal()

    def close(self):
        for relay in self.relays.values():
            relay.close()
