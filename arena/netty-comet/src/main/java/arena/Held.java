package arena;

import io.netty.buffer.ByteBuf;
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

/** A connection with at most one request held. */
final class Held extends SimpleChannelInboundHandler<FullHttpRequest> {
    /** One wheel for all connections, as it is meant to be used: 100 ms a tick, 1,024 ticks a turn. */
    private static final HashedWheelTimer WHEEL = new HashedWheelTimer(100, TimeUnit.MILLISECONDS, 1_024);
    private static final String SINCE = "/?since=";
    /** The number from which the client's next request goes on. */
    private static final String NEXT = "X-Next";

    private final News news;
    private final long minMs;
    private final long maxMs;
    /** Touched by the connection's event loop alone; null: nothing is held. */
    private Timeout timeout;
    private boolean keepAlive;
    private ChannelHandlerContext context;

    Held(News news, long minMs, long maxMs) {
        this.news = news;
        this.minMs = minMs;
        this.maxMs = maxMs;
    }

    @Override
    public void handlerAdded(ChannelHandlerContext context) {
        this.context = context;
    }

    @Override
    protected void channelRead0(ChannelHandlerContext context, FullHttpRequest request) {
        if (timeout != null) {
            // A second request before the answer to the first: pipelining is no way to poll.
            context.close();
            return;
        }
        keepAlive = HttpUtil.isKeepAlive(request);
        var route = request.method().name() + " " + request.uri();
        switch (route) {
            case "GET /" -> hold();
            case "GET /stats" -> answer(HttpResponseStatus.OK, json(news.held()));
            case "POST /broadcast" -> news.publish(
                    Unpooled.copiedBuffer(request.content()),
                    count -> context.executor().execute(() -> answer(HttpResponseStatus.OK, json(count))));
            default -> {
                if (route.startsWith("GET " + SINCE)) {
                    since(request.uri().substring(SINCE.length()));
                } else {
                    answer(HttpResponseStatus.NOT_FOUND, Unpooled.EMPTY_BUFFER);
                }
            }
        }
    }

    private void since(String number) {
        try {
            var missed = news.after(context.executor(), Long.parseLong(number));
            if (missed == null) {
                hold();
            } else {
                answerNext(HttpResponseStatus.OK, missed, news.newest(context.executor()));
            }
        } catch (NumberFormatException malformed) {
            answer(HttpResponseStatus.BAD_REQUEST, Unpooled.EMPTY_BUFFER);
        }
    }

    private void hold() {
        news.wait(context.executor(), this);
        var delayMs = ThreadLocalRandom.current().nextLong(minMs, maxMs + 1);
        timeout = WHEEL.newTimeout(due -> context.executor().execute(() -> release(due)), delayMs, TimeUnit.MILLISECONDS);
    }

    private void release(Timeout due) {
        if (timeout != due) {
            return; // It was answered, or went away, while this was on its way from the wheel.
        }
        timeout = null;
        news.leave(context.executor(), this);
        answerNext(HttpResponseStatus.NO_CONTENT, Unpooled.EMPTY_BUFFER, news.newest(context.executor()));
    }

    /** Answers what is held with a message, which is the newest of this number. On the connection's own loop. */
    void tell(ByteBuf message, long number) {
        timeout.cancel();
        timeout = null;
        answerNext(HttpResponseStatus.OK, message, number);
    }

    @Override
    public void channelInactive(ChannelHandlerContext context) {
        if (timeout != null) {
            timeout.cancel();
            timeout = null;
            news.leave(context.executor(), this);
        }
    }

    private static ByteBuf json(int connections) {
        return Unpooled.copiedBuffer("{\"connections\": " + connections + "}", StandardCharsets.US_ASCII);
    }

    private void answer(HttpResponseStatus status, ByteBuf body) {
        write(new DefaultFullHttpResponse(HttpVersion.HTTP_1_1, status, body));
    }

    private void answerNext(HttpResponseStatus status, ByteBuf body, long next) {
        var response = new DefaultFullHttpResponse(HttpVersion.HTTP_1_1, status, body);
        response.headers().set(NEXT, next);
        write(response);
    }

    private void write(DefaultFullHttpResponse response) {
        if (response.status() != HttpResponseStatus.NO_CONTENT) {
            response.headers().setInt(HttpHeaderNames.CONTENT_LENGTH, response.content().readableBytes());
        }
        if (keepAlive) {
            context.writeAndFlush(response, context.voidPromise());
        } else {
            response.headers().set(HttpHeaderNames.CONNECTION, HttpHeaderValues.CLOSE);
            context.writeAndFlush(response).addListener(ChannelFutureListener.CLOSE);
        }
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
        context.close();
    }
}
