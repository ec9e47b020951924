package sun.misc;

import java.util.Base64;

/**
 * What spray-websocket's handshake calls and Java has not had since version 9. Put into the module that owns this package
 * (--patch-module jdk.unsupported).
 */
public class BASE64Encoder {
    public String encode(byte[] bytes) {
        return Base64.getEncoder().encodeToString(bytes);
    }
}
