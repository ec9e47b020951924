package arena;

import java.nio.ByteBuffer;
import org.eclipse.jetty.websocket.api.Callback;
import org.eclipse.jetty.websocket.api.Session;

/** One WebSocket; Jetty asks for the next message when one has been handled. */
public final class Endpoint implements Session.Listener.AutoDemanding {
    private final Server server;
    private Session session;

    Endpoint(Server server) {
        this.server = server;
    }

    @Override
    public void onWebSocketOpen(Session opened) {
        session = opened;
        server.sessions.add(opened);
    }

    @Override
    public void onWebSocketText(String message) {
        if (server.echo) {
            session.sendText(message, Callback.NOOP);
        }
    }

    @Override
    public void onWebSocketBinary(ByteBuffer payload, Callback callback) {
        if (server.echo) {
            session.sendBinary(payload, callback);
        } else {
            callback.succeed();
        }
    }

    @Override
    public void onWebSocketClose(int status, String reason, Callback callback) {
        server.sessions.remove(session);
        callback.succeed();
    }
}
