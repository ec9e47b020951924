package arena;

import org.glassfish.grizzly.http.HttpRequestPacket;
import org.glassfish.grizzly.websockets.OptimizedBroadcaster;
import org.glassfish.grizzly.websockets.ProtocolHandler;
import org.glassfish.grizzly.websockets.WebSocket;
import org.glassfish.grizzly.websockets.WebSocketApplication;
import org.glassfish.grizzly.websockets.WebSocketListener;

/** All WebSockets: the application keeps them, its broadcaster frames a message once for all. */
final class Crowd extends WebSocketApplication {
    private final OptimizedBroadcaster broadcaster = new OptimizedBroadcaster();
    private final boolean echo;
    private long ticks;

    Crowd(boolean echo) {
        this.echo = echo;
    }

    @Override
    public WebSocket createSocket(ProtocolHandler handler, HttpRequestPacket request, WebSocketListener... listeners) {
        return new Conversation(handler, request, listeners);
    }

    @Override
    public void onMessage(WebSocket socket, String text) {
        if (echo) {
            socket.send(text);
        }
    }

    @Override
    public void onMessage(WebSocket socket, byte[] bytes) {
        if (echo) {
            socket.send(bytes);
        }
    }

    int count() {
        return getWebSockets().size();
    }

    synchronized int broadcast(String payload) {
        var everybody = getWebSockets();
        broadcaster.broadcast(everybody, payload);
        return everybody.size();
    }

    void tick() {
        broadcast("tick " + ++ticks);
    }
}
