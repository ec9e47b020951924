package arena;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBufUtil;
import io.netty.channel.Channel;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.WriteBufferWaterMark;
import io.netty.channel.epoll.EpollIoHandler;
import io.netty.channel.epoll.EpollServerSocketChannel;
import io.netty.handler.codec.http.HttpObjectAggregator;
import io.netty.handler.codec.http.HttpServerCodec;
import java.util.concurrent.TimeUnit;

/** Netty with its native epoll transport: two event loops, every connection on one of them for life. */
public final class Server {
    static final int MESSAGE_BYTES_MAX = 131_072;
    static final int REQUEST_BYTES_MAX = 4_096;
    private static final int EVENT_LOOPS = 2;
    private static final int BACKLOG = 4_096;

    private Server() {}

    public static void main(String[] arguments) throws InterruptedException {
        var echo = setting("MODE", "push").equals("echo");
        var everyMs = Long.parseLong(setting("PUSH_EVERY_MS", "0"));
        var group = new MultiThreadIoEventLoopGroup(EVENT_LOOPS, EpollIoHandler.newFactory());
        var crowd = new Crowd(group);
        if (everyMs > 0) {
            group.next().scheduleAtFixedRate(crowd::tick, everyMs, everyMs, TimeUnit.MILLISECONDS);
        }
        Runtime.getRuntime().addShutdownHook(new Thread(() -> group.shutdownGracefully(0, 1, TimeUnit.SECONDS)));
        listen(group, new Routes(crowd, echo)).closeFuture().sync();
    }

    private static Channel listen(MultiThreadIoEventLoopGroup group, Routes routes) throws InterruptedException {
        return new ServerBootstrap()
                .group(group)
                .channel(EpollServerSocketChannel.class)
                .option(ChannelOption.SO_BACKLOG, BACKLOG)
                .childOption(ChannelOption.TCP_NODELAY, true)
                .childOption(ChannelOption.WRITE_BUFFER_WATER_MARK, new WriteBufferWaterMark(32 << 10, 64 << 10))
                .childHandler(new ChannelInitializer<>() {
                    @Override
                    protected void initChannel(Channel channel) {
                        channel.pipeline().addLast(
                                new HttpServerCodec(), new HttpObjectAggregator(MESSAGE_BYTES_MAX), routes);
                    }
                })
                .bind(setting("HOST", "127.0.0.1"), Integer.parseInt(setting("PORT", "9000")))
                .sync()
                .channel();
    }

    private static String setting(String name, String otherwise) {
        return System.getenv().getOrDefault(name, otherwise);
    }
}
