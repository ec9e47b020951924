package arena;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;

/** Reads PEM, which the JDK has no class for. */
final class Pem {
    static final String PASSWORD = "arena";

    private Pem() {}

    /** A store with an EC key and its certificates. */
    static KeyStore store(Path certificate, Path key) throws GeneralSecurityException, IOException {
        Certificate[] chain;
        try (var file = Files.newInputStream(certificate)) {
            chain = CertificateFactory.getInstance("X.509").generateCertificates(file).toArray(Certificate[]::new);
        }
        var encoded = Files.readString(key).replaceAll("-----[A-Z ]+-----|\\s", "");
        var decoded = new PKCS8EncodedKeySpec(Base64.getDecoder().decode(encoded));
        var store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        store.setKeyEntry(
                "server", KeyFactory.getInstance("EC").generatePrivate(decoded), PASSWORD.toCharArray(), chain);
        return store;
    }
}
