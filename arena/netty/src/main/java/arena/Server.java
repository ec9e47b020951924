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
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import io.netty.handler.ssl.SslProvider;
import java.io.File;
import java.util.List;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLException;

/**
 * Netty with its native epoll transport: two event loops, every connection on one of them for life. TLS is BoringSSL, by
 * netty-tcnative.
 */
public final class Server {
    static final int MESSAGE_BYTES_MAX = 131_072;
    static final int REQUEST_BYTES_MAX = 4_096;
    private static final int EVENT_LOOPS = 2;
    private static final int BACKLOG = 4_096;

    private Server() {}

    public static void main(String[] arguments) throws InterruptedException, SSLException {
        var echo = setting("MODE", "push").equals("echo");
        var everyMs = Long.parseLong(setting("PUSH_EVERY_MS", "0"));
        var group = new MultiThreadIoEventLoopGroup(EVENT_LOOPS, EpollIoHandler.newFactory());
        var crowd = new Crowd(group);
        if (everyMs > 0) {
            group.next().scheduleAtFixedRate(crowd::tick, everyMs, everyMs, TimeUnit.MILLISECONDS);
        }
        Runtime.getRuntime().addShutdownHook(new Thread(() -> group.shutdownGracefully(0, 1, TimeUnit.SECONDS)));
        listen(group, new Routes(crowd, echo), tls()).closeFuture().sync();
    }

    private static Channel listen(MultiThreadIoEventLoopGroup group, Routes routes, SslContext tls)
            throws InterruptedException {
        return new ServerBootstrap()
                .group(group)
                .channel(EpollServerSocketChannel.class)
                .option(ChannelOption.SO_BACKLOG, BACKLOG)
                .childOption(ChannelOption.TCP_NODELAY, true)
                .childOption(ChannelOption.WRITE_BUFFER_WATER_MARK, new WriteBufferWaterMark(32 << 10, 64 << 10))
                .childHandler(new ChannelInitializer<>() {
                    @Override
                    protected void initChannel(Channel channel) {
                        if (tls != null) {
                            channel.pipeline().addLast(tls.newHandler(channel.alloc()));
                        }
                        channel.pipeline().addLast(
                                new HttpServerCodec(), new HttpObjectAggregator(MESSAGE_BYTES_MAX), routes);
                    }
                })
                .bind(setting("HOST", "127.0.0.1"), Integer.parseInt(setting("PORT", "9000")))
                .sync()
                .channel();
    }

    /** TLS 1.3 if there is a certificate, otherwise none. */
    private static SslContext tls() throws SSLException {
        var certificate = setting("TLS_CERTIFICATE", "");
        if (certificate.isEmpty()) {
            return null;
        }
        return SslContextBuilder.forServer(new File(certificate), new File(setting("TLS_KEY", "")))
                .sslProvider(SslProvider.OPENSSL_REFCNT)
                .protocols("TLSv1.3")
                .ciphers(List.of("TLS_AES_128_GCM_SHA256"))
                .build();
    }

    private static String setting(String name, String otherwise) {
        return System.getenv().getOrDefault(name, otherwise);
    }
}
