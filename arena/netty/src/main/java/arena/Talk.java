package arena;

import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandler.Sharable;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.handler.codec.http.websocketx.CloseWebSocketFrame;
import io.netty.handler.codec.http.websocketx.ContinuationWebSocketFrame;
import io.netty.handler.codec.http.websocketx.PingWebSocketFrame;
import io.netty.handler.codec.http.websocketx.PongWebSocketFrame;
import io.netty.handler.codec.http.websocketx.WebSocketFrame;

/** An open WebSocket. One instance for all of them. */
@Sharable
final class Talk extends SimpleChannelInboundHandler<WebSocketFrame> {
    private final boolean echo;

    Talk(boolean echo) {
        this.echo = echo;
    }

    @Override
    protected void channelRead0(ChannelHandlerContext context, WebSocketFrame frame) {
        if (frame instanceof PingWebSocketFrame) {
            context.writeAndFlush(new PongWebSocketFrame(frame.content().retain()), context.voidPromise());
        } else if (frame instanceof CloseWebSocketFrame) {
            context.writeAndFlush(frame.retain()).addListener(ChannelFutureListener.CLOSE);
        } else if (echo && !(frame instanceof PongWebSocketFrame)) {
            context.write(frame.retain(), context.voidPromise());
        }
    }

    @Override
    public void channelReadComplete(ChannelHandlerContext context) {
        if (echo) {
            context.flush();
        }
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
        context.close();
    }
}
