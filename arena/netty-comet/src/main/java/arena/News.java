package arena;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.EventLoopGroup;
import io.netty.util.concurrent.EventExecutor;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.IntConsumer;

/**
 * What was published, and who waits for it. Both are kept by each event loop for itself: a message is one task for each
 * loop, which answers its own connections from its own thread. So a poll that a loop handles finds either the message or
 * its place among those who wait for it.
 */
final class News {
    /** A client that asks later than after this many messages has missed some. */
    private static final int KEPT = 1_024;

    /** One loop's view; touched by that loop alone. */
    private static final class Desk {
        private final ArrayDeque<ByteBuf> kept = new ArrayDeque<>();
        private final Set<Held> waiting = new HashSet<>();
        /** The number of the newest message; the first is 1. */
        private long newest;
    }

    private final Map<EventExecutor, Desk> desks = new IdentityHashMap<>();
    private final AtomicInteger held = new AtomicInteger();

    News(EventLoopGroup loops) {
        loops.forEach(loop -> desks.put(loop, new Desk()));
    }

    int held() {
        return held.get();
    }

    long newest(EventExecutor loop) {
        return desks.get(loop).newest;
    }

    void wait(EventExecutor loop, Held connection) {
        if (desks.get(loop).waiting.add(connection)) {
            held.incrementAndGet();
        }
    }

    void leave(EventExecutor loop, Held connection) {
        if (desks.get(loop).waiting.remove(connection)) {
            held.decrementAndGet();
        }
    }

    /** All messages that are kept after this one, as one buffer that its taker releases; null if there is none. */
    ByteBuf after(EventExecutor loop, long since) {
        var desk = desks.get(loop);
        var missing = (int) Math.min(desk.newest - since, desk.kept.size());
        if (missing <= 0) {
            return null;
        }
        var parts = new ArrayList<ByteBuf>(missing);
        desk.kept.stream().skip(desk.kept.size() - missing).forEach(message -> parts.add(message.retainedDuplicate()));
        return Unpooled.wrappedBuffer(missing, parts.toArray(ByteBuf[]::new));
    }

    /** Takes the message over. {@code done} gets the number of connections once all loops have answered theirs. */
    synchronized void publish(ByteBuf message, IntConsumer done) {
        var handed = new AtomicInteger();
        var loops = new AtomicInteger(desks.size());
        message.retain(desks.size() - 1);
        desks.forEach((loop, desk) -> loop.execute(() -> {
            var waiting = keep(desk, message);
            held.addAndGet(-waiting.size());
            waiting.forEach(connection -> connection.tell(message.retainedDuplicate(), desk.newest));
            handed.addAndGet(waiting.size());
            if (loops.decrementAndGet() == 0) {
                done.accept(handed.get());
            }
        }));
    }

    private static List<Held> keep(Desk desk, ByteBuf message) {
        desk.kept.addLast(message);
        desk.newest++;
        if (desk.kept.size() > KEPT) {
            desk.kept.removeFirst().release();
        }
        var waiting = new ArrayList<>(desk.waiting);
        desk.waiting.clear();
        return waiting;
    }
}
