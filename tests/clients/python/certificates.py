"""Certificates of tests: an authority that no machine trusts, and what it signs."""

import ssl

import trustme

NAMES = ("localhost", "127.0.0.1")


class Authority:
    """Signs certificates, whose files are in a folder of the test's."""

    def __init__(self, folder):
        self.folder = folder
        self.authority = trustme.CA()
        self.file = folder / "authority.pem"
        self.authority.cert_pem.write_to_path(self.file)

    def issue(self, *names, file="own"):
        """Writes a certificate for these names, and its key. Returns the certificate, as clients see it."""
        issued = self.authority.issue_cert(*(names or NAMES), key_type=trustme.KeyType.ECDSA)
        # The key first: who looks in between finds a pair that does not fit, and looks again.
        issued.private_key_pem.write_to_path(self.folder / f"{file}.key")
        (self.folder / f"{file}.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        return ssl.PEM_cert_to_DER_cert(issued.cert_chain_pems[0].bytes().decode())

    def flags(self, file="own"):
        """Flags that have a server speak TLS with this certificate."""
        return ["--tls-certificate", str(self.folder / f"{file}.pem"), "--tls-key", str(self.folder / f"{file}.key")]

    def context(self, version=None):
        """What clients need to believe this authority, and perhaps to speak one version only."""
        context = ssl.create_default_context(cafile=str(self.file))
        if version:
            context.minimum_version = context.maximum_version = version
        return context
