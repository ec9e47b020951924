"""The files of deploy/ agree with each other, with the tools that read them, and with the pages that show them."""

import contextlib
import http.server
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import tomllib
import unittest
from pathlib import Path

import go_programs

try:
    import yaml
except ImportError:
    yaml = None

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "myriad"
# The variables that compose.yaml does not do without.
SECRETS = {"MYRIAD_API_KEY": "key", "MYRIAD_CLIENT_TOKEN_HMAC_SECRET_KEY": "secret"}


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.M | re.S)


def run(*command, **more):
    """Runs a program to its end. Returns its exit code, its output, and what it wrote to stderr."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **more)
    return done.returncode, done.stdout, done.stderr


def seconds(text):
    """`30s` is 30."""
    return int(re.fullmatch(r"(\d+)s", text)[1])


def default_of(option):
    """The default of an option, as docs/configuration.md has it."""
    options = (ROOT / "docs" / "configuration.md").read_text()
    return re.search(rf'^\| `{option}` \|.*?\| `"?([^`"]+)"?` \|', options, re.M)[1]


def has_compose():
    return shutil.which("docker") is not None and run("docker", "compose", "version")[0] == 0


class DeployTest(unittest.TestCase):
    def test_the_pages_lines_are_those_of_the_files(self):
        pages = [
            ("proxies.md", "nginx", "nginx.conf"),
            ("proxies.md", "haproxy", "haproxy.cfg"),
            ("serve.md", "ini", "myriad.service"),
        ]
        for page, language, name in pages:
            text = (ROOT / "docs" / page).read_text()
            shown = [line.strip() for block in blocks(text, language) for line in block.splitlines()]
            self.assertGreater(len(shown), 5, f"docs/{page} shows nothing of {name}")
            there = {line.strip() for line in (DEPLOY / name).read_text().splitlines()}
            self.assertEqual([line for line in shown if line and line not in there], [], name)

    def test_the_image_has_the_toolchain_of_the_workspace(self):
        channel = re.search(r'^channel = "(.+)"', (ROOT / "rust-toolchain.toml").read_text(), re.M)[1]
        image = re.search(r"^FROM rust:([\d.]+)-", (DEPLOY / "Dockerfile").read_text(), re.M)[1]
        self.assertEqual(image, channel)

    def test_the_image_is_built_with_every_file_that_the_program_contains(self):
        let_in = re.findall(r"^!(.+)$", (DEPLOY / "Dockerfile.dockerignore").read_text(), re.M)
        included = set()
        for source in ROOT.glob("crates/*/src/**/*.rs"):
            for path in re.findall(r'include_(?:str|bytes)!\(\s*"([^"]+)"', source.read_text()):
                included.add((source.parent / path).resolve().relative_to(ROOT))
        self.assertGreater(len(included), 10)
        self.assertTrue(any(path.parts[0] == "examples" for path in included))
        missing = [path for path in included if not any(path.is_relative_to(folder) for folder in let_in)]
        self.assertEqual(missing, [])

    @unittest.skipUnless(shutil.which("objcopy") and shutil.which("rustc"), "objcopy or rustc is not installed")
    def test_a_stripped_program_tells_a_backtrace_with_its_symbols_beside_it(self):
        """The crash of a small program, compiled as the release is: with line tables, and ended by its panic."""
        with tempfile.TemporaryDirectory() as directory:
            folder = Path(directory)
            source = folder / "crash.rs"
            source.write_text("#[inline(never)]\nfn culprit() {\n    panic!(\"here\");\n}\nfn main() {\n    culprit();\n}\n")
            whole = folder / "crash"
            options = ["-C", "debuginfo=line-tables-only", "-C", "panic=abort", "-C", "opt-level=3"]
            code, _, said = run("rustc", *options, "-o", whole, source)
            self.assertEqual(code, 0, said)
            code, _, said = run(DEPLOY / "split-symbols.sh", whole, folder / "dist")
            self.assertEqual(code, 0, said)
            shipped, symbols = folder / "dist" / "crash", folder / "dist" / "crash.debug"
            self.assertLess(shipped.stat().st_size, whole.stat().st_size // 2)

            def backtrace():
                return run(shipped, env={**os.environ, "RUST_BACKTRACE": "1"})[2]

            self.assertIn("crash::culprit\n             at ", backtrace())
            self.assertIn("crash.rs:3:5", backtrace())
            # The folder may be another one, and without them there are no names.
            symbols.rename(folder / "crash.debug")
            self.assertNotIn("crash::culprit", backtrace())
            (folder / "dist" / ".debug").mkdir()
            (folder / "crash.debug").rename(folder / "dist" / ".debug" / "crash.debug")
            self.assertIn("crash::culprit\n             at ", backtrace())

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
    def test_systemd_accepts_the_unit(self):
        # The program of the unit is not installed here; systemd looks for it.
        unit = (DEPLOY / "myriad.service").read_text().replace("/usr/local/bin/myriad", shutil.which("true"))
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "myriad.service"
            file.write_text(unit)
            # A package brings the manual page that the unit names.
            code, output, errors = run("systemd-analyze", "verify", "--man=no", file)
        self.assertEqual((code, errors), (0, ""), output)

    def test_a_reload_reads_the_file_that_people_change(self):
        unit = (DEPLOY / "myriad.service").read_text()
        config = re.search(r"^ExecStart=.* --config (\S+)$", unit, re.M)[1]
        self.assertIn(f" {config} ", (ROOT / "docs" / "serve.md").read_text())
        self.assertRegex(unit, r"(?m)^ExecReload=\S+ -HUP \$MAINPID$")
        # systemd makes its copy at the start only.
        self.assertNotRegex(unit, r"(?m)^LoadCredential=")
        self.assertNotIn("CREDENTIALS_DIRECTORY", config)

    def test_systemd_waits_longer_than_a_drain(self):
        unit = (DEPLOY / "myriad.service").read_text()
        stop = re.search(r"^TimeoutStopSec=(\d+)s$", unit, re.M)[1]
        self.assertGreater(int(stop), seconds(default_of("drain")) + 5)


class ComposeTest(unittest.TestCase):
    """deploy/compose.yaml, with the files that its containers have."""

    def setUp(self):
        if yaml is None:
            self.skipTest("the Python package yaml is not installed")
        self.compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
        self.services = self.compose["services"]
        self.config = tomllib.loads((DEPLOY / "cluster.toml").read_text())

    @unittest.skipUnless(has_compose(), "docker compose is not installed")
    def test_compose_accepts_the_file(self):
        command = ["docker", "compose", "-f", DEPLOY / "compose.yaml", "config", "--quiet"]
        code, _, errors = run(*command, env={**os.environ, **SECRETS})
        self.assertEqual((code, errors), (0, ""))
        for secret in SECRETS:
            others = {name: value for name, value in SECRETS.items() if name != secret}
            code, _, errors = run(*command, env={**os.environ, **others, secret: ""})
            self.assertNotEqual(code, 0)
            self.assertIn(secret, errors)

    def test_files_that_are_mounted_are_there(self):
        for service in self.services.values():
            for volume in service["volumes"]:
                source = volume.split(":")[0]
                is_file = source.startswith("./") and (DEPLOY / source).is_file()
                self.assertTrue(is_file or source in self.compose["volumes"], source)

    def test_nodes_and_servers_find_each_other(self):
        servers = sorted(name for name in self.services if name.startswith("nats-"))
        self.assertEqual(self.config["broker"], ",".join(f"nats://{name}:4222" for name in servers))
        self.assertEqual(self.config["broker-replicas"], len(servers))
        routes = re.search(r"routes: \[(.*)\]", (DEPLOY / "nats.conf").read_text())[1]
        self.assertEqual(routes.split(", "), [f"nats://{name}:6222" for name in servers])
        for name in servers:
            self.assertEqual(self.services[name]["command"][-2:], ["--name", name])
            self.assertEqual(self.services["myriad"]["depends_on"][name], {"condition": "service_healthy"})
        # The version with which the cluster is tested.
        version = go_programs.SOURCES["nats-server"].version
        self.assertEqual({self.services[name]["image"] for name in servers}, {f"nats:{version}-alpine"})

    def test_nodes_believe_the_proxy_and_nobody_else(self):
        address = self.services["haproxy"]["networks"]["default"]["ipv4_address"]
        self.assertEqual(self.config["trusted-proxies"], [address])

    def test_the_proxy_finds_the_nodes(self):
        proxy = (DEPLOY / "haproxy-cluster.cfg").read_text()
        port = self.config["listen"].split(":")[1]
        places = int(re.search(rf"server-template \S+ (\d+) myriad:{port} ", proxy)[1])
        self.assertGreaterEqual(places, self.services["myriad"]["deploy"]["replicas"])
        published = self.services["haproxy"]["ports"][0].split(":")[1]
        self.assertRegex(proxy, rf"(?m)^    bind :{published}$")

    def test_the_proxy_treats_clients_as_the_one_of_a_single_server(self):
        def defaults(name):
            section = re.search(r"^defaults\n(.*?)^\S", (DEPLOY / name).read_text(), re.M | re.S)[1]
            lines = [line.strip() for line in section.splitlines()]
            return [line for line in lines if line and not line.startswith("#")]

        ours = [line for line in defaults("haproxy-cluster.cfg") if line != "log global"]
        self.assertEqual(ours, defaults("haproxy.cfg"))

    @unittest.skipUnless(shutil.which("haproxy", path=os.environ.get("PATH", "") + ":/usr/sbin"), "haproxy is not installed")
    def test_haproxy_accepts_its_file(self):
        program = shutil.which("haproxy", path=os.environ.get("PATH", "") + ":/usr/sbin")
        code, output, errors = run(program, "-c", "-f", DEPLOY / "haproxy-cluster.cfg")
        self.assertEqual((code, errors), (0, ""), output)

    def test_docker_waits_longer_than_a_stop_takes(self):
        stop = {name: seconds(service["stop_grace_period"]) for name, service in self.services.items()}
        self.assertGreater(stop["myriad"], seconds(default_of("drain")) + 5)
        duck = seconds(re.search(r"lame_duck_duration: (\S+)", (DEPLOY / "nats.conf").read_text())[1])
        self.assertGreater(stop["nats-1"], duck + 5)
        hard_stop = seconds(re.search(r"hard-stop-after (\S+)", (DEPLOY / "haproxy-cluster.cfg").read_text())[1])
        self.assertGreater(stop["haproxy"], hard_stop)

    @unittest.skipUnless(shutil.which("bash"), "bash is not installed")
    def test_the_health_check_of_a_node_asks_for_its_health(self):
        test = self.services["myriad"]["healthcheck"]["test"]
        self.assertEqual(test[:3], ["CMD", "bash", "-c"])
        asked = []
        for status in (200, 503):
            with answering(status, asked) as port:
                # Compose makes one dollar of two.
                script = test[3].replace("$$", "$").replace("/8000", f"/{port}")
                code, _, errors = run("bash", "-c", script)
            self.assertEqual(code == 0, status == 200, errors)
        self.assertEqual(asked, ["/healthz", "/healthz"])
        code, _, _ = run("bash", "-c", script)
        self.assertNotEqual(code, 0, "nobody listens")


@contextlib.contextmanager
def answering(status, asked):
    """A server that answers every request with that status, and notes the paths. Gives its port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


# What has no default.
LEAST = {"image": {"repository": "registry.example/myriad"}, "secret": {"apiKey": "key"}}
# Everything that is off by default.
MOST = {
    "image": {"repository": "registry.example/myriad", "tag": "1.2.3", "pullSecrets": [{"name": "registry"}]},
    "listenAddress": "[::]",
    "drainSeconds": 60,
    "preStopSeconds": 20,
    "maxConnections": 5_000_000,
    "broker": {"credentials": {"secret": "creds"}, "tls": {"secret": "tls", "clientCertificate": True}},
    "secret": {"apiKey": "", "existing": "mine"},
    "config": "anonymous = true\n",
    "env": [{"name": "MYRIAD_LOG", "value": "warn"}],
    "service": {"type": "LoadBalancer", "annotations": {"cloud/timeout": "120"}},
    "podDisruptionBudget": {"maxUnavailable": "25%"},
    "topologySpread": {"whenUnsatisfiable": "DoNotSchedule"},
    "networkPolicy": {"enabled": True, "clientsFrom": [{"podSelector": {"matchLabels": {"app": "ingress"}}}]},
    "monitoring": {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}, "rules": {"enabled": True}},
    "sysctls": [{"name": "net.core.somaxconn", "value": "65535"}],
    "podAnnotations": {"prometheus.io/scrape": "true"},
    "podLabels": {"team": "push"},
    "nodeSelector": {"pool": "push"},
    "tolerations": [{"key": "push", "operator": "Exists"}],
    "priorityClassName": "high",
}


@unittest.skipUnless(shutil.which("helm"), "helm is not installed (go install helm.sh/helm/v3/cmd/helm@latest)")
class ChartTest(unittest.TestCase):
    """deploy/helm/myriad."""

    def setUp(self):
        if yaml is None:
            self.skipTest("the Python package yaml is not installed")

    def helm(self, command, values):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(values, file)
            file.flush()
            # The oldest version that the chart is for. A helm that Go installed takes another one by itself.
            return run("helm", *command, "--values", file.name, "--kube-version", "1.27.0")

    def render(self, values, chart=CHART):
        """The manifests, by kind and name."""
        code, output, errors = self.helm(["template", "push", chart, "--namespace", "live"], values)
        self.assertEqual((code, errors), (0, ""))
        manifests = [one for one in yaml.safe_load_all(output) if one]
        return {(one["kind"], one["metadata"]["name"]): one for one in manifests}

    def refusal(self, values):
        code, _, errors = self.helm(["template", "push", CHART], values)
        self.assertNotEqual(code, 0)
        return errors

    def test_helm_finds_no_fault(self):
        for values in (LEAST, MOST):
            code, output, errors = self.helm(["lint", "--strict", CHART], values)
            self.assertEqual(code, 0, output + errors)

    def test_what_has_no_default_is_asked_for(self):
        self.assertIn("image.repository", self.refusal({"secret": {"apiKey": "key"}}))
        self.assertIn("secret.apiKey", self.refusal({"image": {"repository": "myriad"}}))

    def test_what_does_nothing_is_refused(self):
        self.assertIn("replica", self.refusal({**LEAST, "replica": 3}))
        self.assertIn("stream", self.refusal({**LEAST, "broker": {"stream": "x"}}))
        self.assertIn("internalFrom", self.refusal({**LEAST, "networkPolicy": {"internalFrom": []}}))

    def test_manifests_fit_together(self):
        for values in (LEAST, MOST):
            manifests = self.render(values)
            deployment = manifests["Deployment", "push-myriad"]["spec"]
            pod = deployment["template"]
            labels, container = pod["metadata"]["labels"], pod["spec"]["containers"][0]
            selectors = [deployment["selector"]["matchLabels"]]
            selectors += [one["labelSelector"]["matchLabels"] for one in pod["spec"]["topologySpreadConstraints"]]
            ports = {port["name"] for port in container["ports"]}
            for (kind, _), manifest in manifests.items():
                if kind == "Service":
                    selectors.append(manifest["spec"]["selector"])
                    self.assertLessEqual({port["targetPort"] for port in manifest["spec"]["ports"]}, ports)
                elif kind == "PodDisruptionBudget":
                    selectors.append(manifest["spec"]["selector"]["matchLabels"])
                elif kind == "ServiceMonitor":
                    selectors.append(manifest["spec"]["selector"]["matchLabels"])
                elif kind == "NetworkPolicy":
                    selectors.append(manifest["spec"]["podSelector"]["matchLabels"])
                    named = {port["port"] for rule in manifest["spec"]["ingress"] for port in rule["ports"]}
                    self.assertEqual(named, ports)
            for selector in selectors:
                self.assertLessEqual(selector.items(), labels.items())
            self.assertLessEqual({mount["name"] for mount in container["volumeMounts"]}, {one["name"] for one in pod["spec"]["volumes"]})
            self.assertIn(container["readinessProbe"]["httpGet"]["port"], ports)

    def test_kubernetes_waits_longer_than_a_stop_takes(self):
        for values in (LEAST, MOST):
            manifests = self.render(values)
            spec = manifests["Deployment", "push-myriad"]["spec"]["template"]["spec"]
            program, before = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
            self.assertEqual(program, "sleep")
            drain = seconds(self.options(manifests)["drain"])
            self.assertGreater(spec["terminationGracePeriodSeconds"], int(before) + drain + 5)

    def options(self, manifests):
        return tomllib.loads(manifests["ConfigMap", "push-myriad"]["data"]["myriad.toml"])

    def test_values_become_options(self):
        options = self.options(self.render(LEAST))
        self.assertEqual(options["broker-replicas"], 3)
        self.assertEqual(options["channel"]["namespaces"][0]["name"], "chat")
        self.assertNotIn("broker-ca", options)
        options = self.options(self.render(MOST))
        self.assertEqual(
            options,
            {
                "listen": "[::]:8000",
                "internal-listen": "[::]:8001",
                "max-connections": 5_000_000,
                "drain": "60s",
                "broker": "nats://nats:4222",
                "broker-prefix": "myriad",
                "broker-replicas": 3,
                "broker-interest": "stream",
                "broker-credentials": "/etc/nats/credentials/nats.creds",
                "broker-ca": "/etc/nats/tls/ca.crt",
                "broker-certificate": "/etc/nats/tls/tls.crt",
                "broker-key": "/etc/nats/tls/tls.key",
                "anonymous": True,
            },
        )

    def test_secrets_are_made_or_taken(self):
        manifests = self.render({**LEAST, "secret": {"apiKey": "key", "tokenSecret": "token"}})
        self.assertEqual(manifests["Secret", "push-myriad"]["stringData"], {"api-key": "key", "token-secret": "token"})
        manifests = self.render(MOST)
        self.assertNotIn("Secret", {kind for kind, _ in manifests})
        env = manifests["Deployment", "push-myriad"]["spec"]["template"]["spec"]["containers"][0]["env"]
        self.assertEqual({one["valueFrom"]["secretKeyRef"]["name"] for one in env if "valueFrom" in one}, {"mine"})

    def test_an_operator_of_prometheus_is_told_only_if_wanted(self):
        kinds = {kind for kind, _ in self.render(LEAST)}
        self.assertEqual(kinds & {"ServiceMonitor", "PrometheusRule"}, set())
        # As after an upgrade that keeps values of an older chart.
        self.assertEqual({kind for kind, _ in self.render({**LEAST, "monitoring": None})}, kinds)
        manifests = self.render(MOST)
        monitor = manifests["ServiceMonitor", "push-myriad"]
        self.assertEqual(monitor["metadata"]["labels"]["release"], "prometheus")
        endpoint = monitor["spec"]["endpoints"][0]
        ports = {port["name"] for port in manifests["Service", "push-myriad-internal"]["spec"]["ports"]}
        self.assertIn(endpoint["port"], ports)
        self.assertEqual(endpoint["relabelings"], [{"targetLabel": "job", "replacement": "myriad/live/push"}])
        groups = manifests["PrometheusRule", "push-myriad"]["spec"]["groups"]
        self.assertEqual(groups, yaml.safe_load((DEPLOY / "prometheus" / "rules.yml").read_text())["groups"])
        looked_at = set(re.findall(r'job=~"(.*?)"', json.dumps(groups).replace('\\"', '"')))
        self.assertEqual([pattern for pattern in looked_at if not re.fullmatch(pattern, "myriad/live/push")], [])
        self.assertTrue(looked_at)

    def test_a_change_restarts_the_nodes(self):
        def checksums(values):
            return self.render(values)["Deployment", "push-myriad"]["spec"]["template"]["metadata"]["annotations"]

        self.assertNotEqual(checksums(LEAST), checksums({**LEAST, "config": "anonymous = true"}))
        self.assertNotEqual(checksums(LEAST), checksums({**LEAST, "secret": {"apiKey": "another"}}))

    @unittest.skipUnless(shutil.which("kubectl"), "kubectl is not installed")
    def test_kubernetes_knows_every_field(self):
        # Without a cluster: kubectl reads manifests into its own types, and leaves out what these do not have.
        commands = {"Deployment": ["set", "env", "ADDED=1"], "Service": ["set", "selector", "added=1"]}
        for values in (LEAST, MOST):
            for (kind, _), manifest in self.render(values).items():
                if kind not in commands:
                    continue
                with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                    json.dump(manifest, file)
                    file.flush()
                    change = commands[kind]
                    command = ["kubectl", *change[:2], "--local", "--filename", file.name, "--output", "json", change[2]]
                    code, output, errors = run(*command)
                self.assertEqual((code, errors), (0, ""))
                self.assertEqual(left_out(manifest, json.loads(output)), [], kind)

    def test_notes_say_how_to_begin(self):
        # Helm shows notes only where there is a cluster, so they become a manifest here.
        text = '{{ include (print .Template.BasePath "/NOTES.txt") . | toJson }}'
        manifest = f"kind: Notes\nmetadata: {{name: notes}}\ntext: {text}\n"
        with tempfile.TemporaryDirectory() as directory:
            chart = Path(directory) / "myriad"
            shutil.copytree(CHART, chart)
            (chart / "templates" / "notes.yaml").write_text(manifest)
            values = {**LEAST, "broker": {"url": "nats://ann:secret@nats-0:4222,nats://nats-1:4222"}}
            notes = self.render(values, chart)["Notes", "notes"]["text"]
        self.assertIn("port-forward service/push-myriad-internal 8001:8001", notes)
        self.assertIn("nats://nats-0:4222,nats://nats-1:4222.", notes)
        self.assertNotIn("secret@", notes)
        self.assertIn("secret.tokenSecret", notes)

    def test_the_chart_has_the_version_of_the_workspace(self):
        chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
        version = re.search(r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text(), re.M)[1]
        self.assertEqual(chart["appVersion"], version)


def left_out(wanted, found, path=""):
    """Paths of values that `found` does not have. A selector of a Service is replaced by the command that reads it."""
    if isinstance(wanted, dict):
        if not isinstance(found, dict):
            return [path]
        return [
            name
            for key, value in wanted.items()
            if path != ".spec" or key != "selector" or isinstance(value.get("matchLabels"), dict)
            for name in left_out(value, found.get(key), f"{path}.{key}")
        ]
    if isinstance(wanted, list):
        if not isinstance(found, list) or len(found) < len(wanted):
            return [path]
        return [name for ours, theirs in zip(wanted, found) for name in left_out(ours, theirs, f"{path}[]")]
    return [] if wanted == found else [path]


if __name__ == "__main__":
    unittest.main()
