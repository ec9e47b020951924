package arena;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandler.Sharable;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.handler.codec.http.DefaultFullHttpResponse;
import io.netty.handler.codec.http.FullHttpRequest;
import io.netty.handler.codec.http.HttpHeaderNames;
import io.netty.handler.codec.http.HttpHeaderValues;
import io.netty.handler.codec.http.HttpObjectAggregator;
import io.netty.handler.codec.http.HttpResponseStatus;
import io.netty.handler.codec.http.HttpUtil;
import io.netty.handler.codec.http.HttpVersion;
import io.netty.handler.codec.http.websocketx.WebSocketDecoderConfig;
import io.netty.handler.codec.http.websocketx.WebSocketServerHandshakerFactory;
import java.nio.charset.StandardCharsets;

/** HTTP until the upgrade. Holds nothing of a connection, so that one instance serves all of them. */
@Sharable
final class Routes extends SimpleChannelInboundHandler<FullHttpRequest> {
    private final Crowd crowd;
    private final Talk talk;
    private final WebSocketServerHandshakerFactory handshakers;

    Routes(Crowd crowd, boolean echo) {
        this.crowd = crowd;
        talk = new Talk(echo);
        var decoder = WebSocketDecoderConfig.newBuilder()
                .maxFramePayloadLength(Server.MESSAGE_BYTES_MAX)
                .allowExtensions(false)
                // What is thrown away need not be checked.
                .withUTF8Validator(echo)
                .build();
        handshakers = new WebSocketServerHandshakerFactory("/", null, decoder);
    }

    @Override
    protected void channelRead0(ChannelHandlerContext context, FullHttpRequest request) {
        if (!request.decoderResult().isSuccess()) {
            context.close();
            return;
        }
        switch (request.method().name() + " " + request.uri()) {
            case "GET /" -> upgrade(context, request);
            case "GET /stats" -> answerConnections(context, request, crowd.count());
            case "POST /broadcast" -> {
                var keepAlive = HttpUtil.isKeepAlive(request);
                crowd.broadcast(
                        request.content().retain(),
                        count -> answer(context, keepAlive, HttpResponseStatus.OK, json(count)));
            }
            case "POST /request" -> reply(context, request);
            default -> answer(
                    context, HttpUtil.isKeepAlive(request), HttpResponseStatus.NOT_FOUND, Unpooled.EMPTY_BUFFER);
        }
    }

    private void upgrade(ChannelHandlerContext context, FullHttpRequest request) {
        var handshaker = handshakers.newHandshaker(request);
        if (handshaker == null || !request.headers().contains(HttpHeaderNames.UPGRADE)) {
            WebSocketServerHandshakerFactory.sendUnsupportedVersionResponse(context.channel());
            return;
        }
        var channel = context.channel();
        handshaker.handshake(channel, request).addListener(opened -> {
            if (opened.isSuccess()) {
                // The handshake took the HTTP handlers out and put the frame codec in; these two complete it.
                channel.pipeline().replace(this, "talk", talk);
                crowd.add(channel);
            }
        });
    }

    private static void reply(ChannelHandlerContext context, FullHttpRequest request) {
        var keepAlive = HttpUtil.isKeepAlive(request);
        if (request.content().readableBytes() > Server.REQUEST_BYTES_MAX) {
            answer(context, false, HttpResponseStatus.REQUEST_ENTITY_TOO_LARGE, Unpooled.EMPTY_BUFFER);
        } else {
            answer(context, keepAlive, HttpResponseStatus.OK, request.content().retain());
        }
    }

    private static void answerConnections(ChannelHandlerContext context, FullHttpRequest request, int count) {
        answer(context, HttpUtil.isKeepAlive(request), HttpResponseStatus.OK, json(count));
    }

    private static ByteBuf json(int connections) {
        return Unpooled.copiedBuffer("{\"connections\": " + connections + "}", StandardCharsets.US_ASCII);
    }

    private static void answer(
            ChannelHandlerContext context, boolean keepAlive, HttpResponseStatus status, ByteBuf body) {
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
