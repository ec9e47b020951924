package arena;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.epoll.EpollIoHandler;
import io.netty.channel.epoll.EpollServerSocketChannel;
import io.netty.handler.codec.http.HttpObjectAggregator;
import io.netty.handler.codec.http.HttpServerCodec;
import java.util.concurrent.TimeUnit;

/** Netty with native epoll, holding requests until something is published, or for a random time. */
public final class Server {
    private static final int BODY_BYTES_MAX = 131_072;
    private static final int EVENT_LOOPS = 2;
    private static final int BACKLOG = 4_096;

    private Server() {}

    public static void main(String[] arguments) throws InterruptedException {
        var group = new MultiThreadIoEventLoopGroup(EVENT_LOOPS, EpollIoHandler.newFactory());
        Runtime.getRuntime().addShutdownHook(new Thread(() -> group.shutdownGracefully(0, 1, TimeUnit.SECONDS)));
        var news = new News(group);
        var minMs = Long.parseLong(setting("HOLD_MIN_MS", "30000"));
        var maxMs = Long.parseLong(setting("HOLD_MAX_MS", "90000"));
        new ServerBootstrap()
                .group(group)
                .channel(EpollServerSocketChannel.class)
                .option(ChannelOption.SO_BACKLOG, BACKLOG)
                .childOption(ChannelOption.TCP_NODELAY, true)
                .childHandler(new ChannelInitializer<>() {
                    @Override
                    protected void initChannel(Channel channel) {
                        channel.pipeline().addLast(
                                new HttpServerCodec(),
                                new HttpObjectAggregator(BODY_BYTES_MAX),
                                new Held(news, minMs, maxMs));
                    }
                })
                .bind(setting("HOST", "127.0.0.1"), Integer.parseInt(setting("PORT", "9000")))
                .sync()
                .channel()
                .closeFuture()
                .sync();
    }

    private static String setting(String name, String otherwise) {
        return System.getenv().getOrDefault(name, otherwise);
    }
}
