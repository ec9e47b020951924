package arena;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import org.glassfish.grizzly.http.HttpRequestPacket;
import org.glassfish.grizzly.websockets.DefaultWebSocket;
import org.glassfish.grizzly.websockets.ProtocolHandler;
import org.glassfish.grizzly.websockets.WebSocketListener;

/** One WebSocket: puts fragments together, and ends the connection at a message that is too long. */
final class Conversation extends DefaultWebSocket {
    private static final int MESSAGE_TOO_BIG = 1009;

    /** What has come of a fragmented message; null while there is none. */
    private ByteArrayOutputStream partial;

    Conversation(ProtocolHandler handler, HttpRequestPacket request, WebSocketListener... listeners) {
        super(handler, request, listeners);
    }

    void endTooLong() {
        partial = null;
        close(MESSAGE_TOO_BIG, "a message may have " + Server.MESSAGE_BYTES_MAX + " bytes");
    }

    @Override
    public void onMessage(String text) {
        // Three bytes are the most that a char of a string takes.
        if (text.length() > Server.MESSAGE_BYTES_MAX / 3
                && text.getBytes(StandardCharsets.UTF_8).length > Server.MESSAGE_BYTES_MAX) {
            endTooLong();
        } else {
            super.onMessage(text);
        }
    }

    @Override
    public void onMessage(byte[] bytes) {
        if (bytes.length > Server.MESSAGE_BYTES_MAX) {
            endTooLong();
        } else {
            super.onMessage(bytes);
        }
    }

    @Override
    public void onFragment(boolean last, String text) {
        if (gather(text.getBytes(StandardCharsets.UTF_8)) && last) {
            super.onMessage(takePartial().toString(StandardCharsets.UTF_8));
        }
    }

    @Override
    public void onFragment(boolean last, byte[] bytes) {
        if (gather(bytes) && last) {
            super.onMessage(takePartial().toByteArray());
        }
    }

    private boolean gather(byte[] bytes) {
        if (partial == null) {
            partial = new ByteArrayOutputStream();
        }
        if (partial.size() + bytes.length > Server.MESSAGE_BYTES_MAX) {
            endTooLong();
            return false;
        }
        partial.writeBytes(bytes);
        return true;
    }

    private ByteArrayOutputStream takePartial() {
        var whole = partial;
        partial = null;
        return whole;
    }
}
