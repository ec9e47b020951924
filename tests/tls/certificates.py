"""An authority of our own, and what it signs."""

import datetime
import ipaddress
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = datetime.timedelta(days=90)


@dataclass
class Identity:
    """A client's certificate and key."""

    # In DER.
    chain: list
    key: ec.EllipticCurvePrivateKey

    def sign(self, text):
        return self.key.sign(text, ec.ECDSA(hashes.SHA256()))


class Authority:
    """Its certificate is at `path`; that of a server for localhost at `server_chain`, with `server_key`."""

    def __init__(self, directory, name="an authority for tests"):
        self.name = name
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self.build(name, self.key, is_authority=True)
        self.path = str(directory / "authority.pem")
        self.server_chain, self.server_key = str(directory / "chain.pem"), str(directory / "key.pem")
        self.write(self.path, self.certificate.public_bytes(Encoding.PEM))
        self.certify_server(ec.generate_private_key(ec.SECP256R1()))

    @classmethod
    def with_slow_server(cls, directory):
        """One whose server signs as slowly as a key in use does."""
        authority = cls(directory)
        authority.certify_server(rsa.generate_private_key(65537, 4096))
        return authority

    def certify_server(self, key):
        chain = self.build("localhost", key, usage=ExtendedKeyUsageOID.SERVER_AUTH)
        self.write(self.server_chain, chain.public_bytes(Encoding.PEM))
        self.write(self.server_key, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))

    @staticmethod
    def write(path, contents):
        with open(path, "wb") as file:
            file.write(contents)

    def client(self, name="a client"):
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self.build(name, key, usage=ExtendedKeyUsageOID.CLIENT_AUTH)
        return Identity([certificate.public_bytes(Encoding.DER)], key)

    def build(self, name, key, is_authority=False, usage=None):
        now = datetime.datetime.now(datetime.timezone.utc)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self.name)]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + LIFETIME)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )
        if usage:
            names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False).add_extension(
                x509.ExtendedKeyUsage([usage]), critical=False
            )
        return builder.sign(self.key, hashes.SHA256())
