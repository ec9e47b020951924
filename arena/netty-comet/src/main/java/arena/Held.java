package arena;

import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.handler.codec.http.DefaultFullHttpResponse;
import io.netty.handler.codec.http.FullHttpRequest;
import io.netty.handler.codec.http.HttpHeaderNames;
import io.netty.handler.codec.http.HttpHeaderValues;
import io.netty.handler.codec.http.HttpResponseStatus;
import io.netty.handler.codec.http.HttpUtil;
import io.netty.handler.codec.http.HttpVersion;
import io.netty.util.HashedWheelTimer;
import io.netty.util.Timeout;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** A connection with at most one request held. */
final class Held extends SimpleChannelInboundHandler<FullHttpRequest> {
    /** One wheel for all connections, as it is meant to be used: 100 ms a tick, 1,024 ticks a turn. */
    private static final HashedWheelTimer WHEEL = new HashedWheelTimer(100, TimeUnit.MILLISECONDS, 1_024);

    /** Held requests of the process. */
    static final class Count {
        private final AtomicInteger held = new AtomicInteger();
    }

    private final Count count;
    private final long minMs;
    private final long maxMs;
    /** Touched by the connection's event loop alone; null: nothing is held. */
    private Timeout timeout;

    Held(Count count, long minMs, long maxMs) {
        this.count = count;
        this.minMs = minMs;
        this.maxMs = maxMs;
    }

    @Override
    protected void channelRead0(ChannelHandlerContext context, FullHttpRequest request) {
        var keepAlive = HttpUtil.isKeepAlive(request);
        switch (request.method().name() + " " + request.uri()) {
            case "GET /" -> hold(context, keepAlive);
            case "GET /stats" -> answer(
                    context, keepAlive, HttpResponseStatus.OK, "{\"connections\": " + count.held.get() + "}");
            default -> answer(context, keepAlive, HttpResponseStatus.NOT_FOUND, "");
        }
    }

    private void hold(ChannelHandlerContext context, boolean keepAlive) {
        if (timeout != null) {
            // A second request before the answer to the first: pipelining is no way to poll.
            context.close();
            return;
        }
        count.held.incrementAndGet();
        var delayMs = ThreadLocalRandom.current().nextLong(minMs, maxMs + 1);
        timeout = WHEEL.newTimeout(
                due -> context.executor().execute(() -> release(context, keepAlive)), delayMs, TimeUnit.MILLISECONDS);
    }

    private void release(ChannelHandlerContext context, boolean keepAlive) {
        if (timeout == null) {
            return; // The connection went away while this was on its way from the wheel.
        }
        timeout = null;
        count.held.decrementAndGet();
        answer(context, keepAlive, HttpResponseStatus.OK, "no news");
    }

    @Override
    public void channelInactive(ChannelHandlerContext context) {
        if (timeout != null) {
            timeout.cancel();
            timeout = null;
            count.held.decrementAndGet();
        }
    }

    private static void answer(ChannelHandlerContext context, boolean keepAlive, HttpResponseStatus status, String text) {
        var body = Unpooled.copiedBuffer(text, StandardCharsets.US_ASCII);
        var response = new DefaultFullHttpResponse(HttpVersion.HTTP_1_1, status, body);
        response.headers().setInt(HttpHeaderNames.CONTENT_LENGTH, body.readableBytes());
        if (!keepAlive) {
            response.headers().set(HttpHeaderNames.CONNECTION, HttpHeaderValues.CLOSE);
        }
        var written = context.writeAndFlush(response);
        if (!keepAlive) {
            written.addListener(ChannelFutureListener.CLOSE);
        }
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
        context.close();
    }
}
