"""A certificate for tests, which openssl makes: its own, and no CA's, so that clients may trust it alone."""

import subprocess

CURVE = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
NAMES = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]


def certificate(directory, days=2):
    """The paths of a certificate for localhost and 127.0.0.1, and of its key."""
    certificate, key = directory / "cert.pem", directory / "key.pem"
    command = ["openssl", "req", "-x509", *CURVE, "-nodes", "-days", str(days), *NAMES, "-addext", "basicConstraints=critical,CA:FALSE"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key
