package arena;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;

/**
 * Java NIO and nothing else: one selector accepts connections and holds them. What a connection costs on the JVM before
 * any framework adds to it.
 */
public final class Server {
    private static final int BACKLOG = 4_096;
    private static final String STATS = "GET /stats ";

    private final Selector selector = Selector.open();
    private final ServerSocketChannel listener = ServerSocketChannel.open();
    /** One for all connections: what comes in is thrown away. */
    private final ByteBuffer input = ByteBuffer.allocateDirect(64 << 10);
    private int connections;

    private Server() throws IOException {}

    public static void main(String[] arguments) throws IOException {
        new Server().run(new InetSocketAddress(
                setting("HOST", "127.0.0.1"), Integer.parseInt(setting("PORT", "9000"))));
    }

    private void run(InetSocketAddress address) throws IOException {
        listener.setOption(StandardSocketOptions.SO_REUSEADDR, true);
        listener.bind(address, BACKLOG);
        listener.configureBlocking(false);
        listener.register(selector, SelectionKey.OP_ACCEPT);
        while (true) {
            selector.select(this::ready);
        }
    }

    private void ready(SelectionKey key) {
        if (key.isAcceptable()) {
            accept();
        } else {
            read(key);
        }
    }

    private void accept() {
        try {
            for (SocketChannel channel; (channel = listener.accept()) != null; ) {
                channel.configureBlocking(false);
                // The attachment tells a connection that has said something from one that may still ask for /stats.
                channel.register(selector, SelectionKey.OP_READ, Boolean.FALSE);
                connections++;
            }
        } catch (IOException error) {
            // Out of descriptors: the rest waits in the backlog.
            System.err.println(error);
        }
    }

    private void read(SelectionKey key) {
        var channel = (SocketChannel) key.channel();
        try {
            input.clear();
            var bytes = channel.read(input);
            var first = key.attach(Boolean.TRUE) == Boolean.FALSE;
            if (bytes < 0) {
                end(channel);
            } else if (first && asksForStats(bytes)) {
                answer(channel);
            }
        } catch (IOException reset) {
            end(channel);
        }
    }

    private boolean asksForStats(int bytes) {
        if (bytes < STATS.length()) {
            return false;
        }
        for (var place = 0; place < STATS.length(); place++) {
            if (input.get(place) != STATS.charAt(place)) {
                return false;
            }
        }
        return true;
    }

    private void answer(SocketChannel channel) throws IOException {
        connections--;
        var body = "{\"connections\": " + connections + "}";
        var response = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: " + body.length() + "\r\n\r\n" + body;
        // An empty socket buffer takes so little whole.
        channel.write(ByteBuffer.wrap(response.getBytes(StandardCharsets.US_ASCII)));
        channel.close();
    }

    private void end(SocketChannel channel) {
        connections--;
        try {
            channel.close();
        } catch (IOException error) {
            System.err.println(error);
        }
    }

    private static String setting(String name, String otherwise) {
        return System.getenv().getOrDefault(name, otherwise);
    }
}
