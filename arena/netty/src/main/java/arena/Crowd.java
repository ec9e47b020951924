package arena;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.EventLoop;
import io.netty.channel.EventLoopGroup;
import io.netty.handler.codec.http.websocketx.TextWebSocketFrame;
import io.netty.util.concurrent.EventExecutor;
import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.IntConsumer;

/**
 * All open WebSockets, kept by the event loop that owns them: a push is one task for each loop, which then writes
 * from its own thread, instead of one task for each connection (what a ChannelGroup does from a foreign thread).
 */
final class Crowd {
    /** Each value is touched by its loop alone. */
    private final Map<EventExecutor, Set<Channel>> byLoop = new IdentityHashMap<>();
    private final AtomicInteger count = new AtomicInteger();
    private long ticks;

    Crowd(EventLoopGroup group) {
        group.forEach(loop -> byLoop.put(loop, new HashSet<>()));
    }

    int count() {
        return count.get();
    }

    /** On the channel's own loop. */
    void add(Channel channel) {
        var mine = byLoop.get(channel.eventLoop());
        mine.add(channel);
        count.incrementAndGet();
        channel.closeFuture().addListener(closed -> {
            mine.remove(channel);
            count.decrementAndGet();
        });
    }

    /** Takes the payload over. {@code done} gets the number of connections once all loops have written. */
    synchronized void broadcast(ByteBuf payload, IntConsumer done) {
        var handed = new AtomicInteger();
        var loops = new AtomicInteger(byLoop.size());
        payload.retain(byLoop.size() - 1);
        byLoop.forEach((loop, mine) -> loop.execute(() -> {
            handed.addAndGet(mine.size());
            write(payload, mine);
            if (loops.decrementAndGet() == 0) {
                done.accept(handed.get());
            }
        }));
    }

    private static void write(ByteBuf payload, Set<Channel> channels) {
        try {
            for (var channel : channels) {
                channel.writeAndFlush(new TextWebSocketFrame(payload.retainedDuplicate()), channel.voidPromise());
            }
        } finally {
            payload.release();
        }
    }

    void tick() {
        var payload = "tick " + ++ticks;
        broadcast(Unpooled.copiedBuffer(payload, StandardCharsets.US_ASCII), connections -> {});
    }
}
