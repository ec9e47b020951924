"""What scanners find: nothing that is not in a list of accepted findings, each with its reason."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# testssl.sh makes hundreds of connections, each with processes of its own: some 50 s on an idle machine.
TESTSSL_SECONDS_MAX = 900

# Of testssl.sh: identifiers, and why an operator accepts them.
ACCEPTED = {
    "cert_revocation": "the tests' own authority publishes no list of revoked certificates",
    "engine_problem": "about the openssl here, not about the server",
    "RC4": "about the openssl here, which has no RC4 to offer; the server has none",
    "scanTime": "the machine was busy",
    "sessionresumption_ticket": "on a busy machine its client may leave before the ticket comes; test_resumption.py resumes with tickets",
}
# Its checks that must have run: a scanner that gave up finds nothing.
MUST_RUN = {
    "SSLv2", "SSLv3", "TLS1", "TLS1_1", "TLS1_2", "TLS1_3", "heartbleed", "CCS", "ticketbleed", "ROBOT", "secure_renego",
    "secure_client_renego", "CRIME_TLS", "POODLE_SSL", "SWEET32", "FREAK", "DROWN", "LOGJAM", "BEAST", "LUCKY13", "cipher_order",
    "fallback_SCSV", "cert_chain_of_trust",
}
# Checks of sslyze.
SSLYZE = [
    "--sslv2", "--sslv3", "--tlsv1", "--tlsv1_1", "--tlsv1_2", "--tlsv1_3", "--elliptic_curves", "--compression", "--early_data",
    "--heartbleed", "--openssl_ccs", "--robot", "--reneg", "--resum", "--fallback", "--ems", "--certinfo",
]


def find_testssl():
    return shutil.which("testssl") or shutil.which("testssl.sh")


def test_testssl(endpoint, authority, tmp_path):
    program = find_testssl()
    if not program:
        pytest.skip("testssl.sh is not installed (apt-get install testssl.sh)")
    report = tmp_path / "report.json"
    checks = ["--protocols", "--server-defaults", "--server-preference", "--vulnerable", "--fast"]
    # No look-ups of names, no questions, and no connections to anybody else.
    quiet = ["--warnings", "off", "--nodns", "none", "--color", "0", "--ip", "127.0.0.1", "--add-ca", authority.path]
    done = subprocess.run(
        [program, "--jsonfile", str(report), *quiet, *checks, f"localhost:{endpoint.port}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=TESTSSL_SECONDS_MAX,
        cwd=tmp_path,
        env={**os.environ, "TERM": "dumb"},
    )
    findings = json.loads(report.read_text())
    ran = {finding["id"].split(" ")[0] for finding in findings}
    assert MUST_RUN <= ran, (MUST_RUN - ran, done.stdout[-3000:])
    bad = [
        finding
        for finding in findings
        if finding["severity"] not in ("OK", "INFO") and finding["id"].split(" ")[0] not in ACCEPTED
    ]
    assert not bad, bad


def test_sslyze(endpoint, tmp_path):
    """Each figure is what docs/tls.md says. Mozilla's rules about certificates would refuse that of any test."""
    report = tmp_path / "report.json"
    program = Path(sys.executable).with_name("sslyze")
    target = f"localhost:{endpoint.port}"
    done = subprocess.run(
        [program, "--json_out", report, "--mozilla_config", "disable", *SSLYZE, target],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TESTSSL_SECONDS_MAX,
    )
    assert report.exists(), done.stdout + done.stderr
    (server,) = json.loads(report.read_text())["server_scan_results"]
    assert server["connectivity_status"] == "COMPLETED", done.stdout
    attempts = server["scan_result"]
    failed = {name: each for name, each in attempts.items() if each and each["status"] not in ("COMPLETED", "NOT_SCHEDULED")}
    assert not failed, failed
    found = {name: each["result"] for name, each in attempts.items() if each and each["result"]}
    for version in ("ssl_2_0", "ssl_3_0", "tls_1_0", "tls_1_1"):
        assert found[f"{version}_cipher_suites"]["accepted_cipher_suites"] == [], version
    suites = {
        version: {each["cipher_suite"]["name"] for each in found[f"tls_{version}_cipher_suites"]["accepted_cipher_suites"]}
        for version in ("1_2", "1_3")
    }
    # "Choices" in docs/tls.md.
    assert suites["1_2"] == {
        f"TLS_ECDHE_ECDSA_WITH_{cipher}" for cipher in ("AES_128_GCM_SHA256", "AES_256_GCM_SHA384", "CHACHA20_POLY1305_SHA256")
    }
    assert suites["1_3"] == {
        f"TLS_{cipher}" for cipher in ("AES_128_GCM_SHA256", "AES_256_GCM_SHA384", "CHACHA20_POLY1305_SHA256")
    }
    curves = {each["name"] for each in found["elliptic_curves"]["supported_curves"]}
    assert {"X25519", "secp256r1", "secp384r1"} <= curves <= {"X25519", "secp256r1", "secp384r1", "X25519MLKEM768"}
    assert found["tls_compression"] == {"supports_compression": False}
    assert found["tls_1_3_early_data"] == {"supports_early_data": False}
    assert found["heartbleed"] == {"is_vulnerable_to_heartbleed": False}
    assert found["openssl_ccs_injection"] == {"is_vulnerable_to_ccs_injection": False}
    assert found["robot"]["robot_result"].startswith("NOT_VULNERABLE")
    assert found["session_renegotiation"]["supports_secure_renegotiation"]
    assert found["session_renegotiation"]["client_renegotiations_success_count"] == 0
    assert found["tls_fallback_scsv"] == {"supports_fallback_scsv": True}
    assert found["tls_extended_master_secret"] == {"supports_ems_extension": True}
    # By identifier nobody resumes. sslyze counts a ticket as used only if the server gives the same one again, which this one never does.
    assert found["session_resumption"]["session_id_successful_resumptions_count"] == 0
