package arena;

import java.io.IOException;
import org.glassfish.grizzly.filterchain.FilterChainContext;
import org.glassfish.grizzly.filterchain.NextAction;
import org.glassfish.grizzly.websockets.WebSocketAddOn;
import org.glassfish.grizzly.websockets.WebSocketFilter;
import org.glassfish.grizzly.websockets.WebSocketHolder;

/**
 * Grizzly's WebSockets with a limit, which they do not have of their own: its filter keeps what has come of a frame until all of
 * it is there, however long the frame.
 */
final class BoundedFrames extends WebSocketAddOn {
    /** No closing of idle connections. */
    private static final long NEVER = -1;

    @Override
    protected WebSocketFilter createWebSocketFilter() {
        return new WebSocketFilter(NEVER) {
            @Override
            public NextAction handleRead(FilterChainContext context) throws IOException {
                var next = super.handleRead(context);
                endTooLong(WebSocketHolder.get(context.getConnection()));
                return next;
            }
        };
    }

    /** The frame's head is read by then: what is kept is payload. */
    private static void endTooLong(WebSocketHolder holder) {
        if (holder != null && holder.buffer != null && holder.buffer.remaining() > Server.MESSAGE_BYTES_MAX) {
            holder.buffer = null;
            ((Conversation) holder.webSocket).endTooLong();
        }
    }
}
