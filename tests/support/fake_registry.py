"""An image registry for tests, on 127.0.0.1: the part of Docker's registry API (version 2) that a push needs.

    with FakeRegistry("user", "password") as registry:
        subprocess.run(["buildah", "push", "--tls-verify=false", "image", f"{registry.host}/team/image:tag"])
        registry.manifests  # {"team/image:tag": bytes}
"""

import base64
import hashlib
import http.server
import re
import threading


class FakeRegistry:
    def __init__(self, username, password, writable=True):
        """writable: whether the user may push."""
        self.authorization = "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()
        self.writable = writable
        self.blobs, self.manifests = {}, {}  # digest -> bytes; name:tag -> bytes
        self.refused = 0  # requests with wrong or missing credentials

    def __enter__(self):
        handler = type("Handler", (_Handler,), {"registry": self})
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.host = f"127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    registry = None

    def log_message(self, *_):  # of the base class, which prints each request
        pass

    def _body(self):
        if self.headers.get("Transfer-Encoding", "") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _answer(self, code, content=b"", **headers):
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _handle(self):
        registry, body = self.registry, self._body()
        if self.headers.get("Authorization") != registry.authorization:
            registry.refused += 1
            self._answer(401, b'{"errors": [{"code": "UNAUTHORIZED"}]}', WWW_Authenticate='Basic realm="fake"')
        elif self.path == "/v2/":
            self._answer(200, b"{}")
        elif self.command in ("GET", "HEAD"):
            content = registry.blobs.get(self.path.split("/")[-1])
            self._answer(404 if content is None else 200, content or b"")
        elif not registry.writable:
            self._answer(403, b'{"errors": [{"code": "DENIED", "message": "no access to this registry"}]}')
        elif match := re.fullmatch(r"/v2/(.+)/manifests/(.+)", self.path):
            registry.manifests[f"{match[1]}:{match[2]}"] = body
            self._answer(201, Docker_Content_Digest="sha256:" + hashlib.sha256(body).hexdigest())
        elif self.command == "POST":
            self._answer(202, Location=f"{self.path.rstrip('/')}/{len(registry.blobs)}-{id(self)}")
        elif self.command == "PATCH":
            registry.blobs[self.path] = registry.blobs.get(self.path, b"") + body
            self._answer(202, Location=self.path, Range=f"0-{len(registry.blobs[self.path]) - 1}")
        else:
            self._finish_upload(body)

    def _finish_upload(self, body):
        path, _, query = self.path.partition("?")
        content = self.registry.blobs.pop(path, b"") + body
        digest = "sha256:" + hashlib.sha256(content).hexdigest()
        if query.replace("%3A", ":") != f"digest={digest}":
            self._answer(400, b'{"errors": [{"code": "DIGEST_INVALID"}]}')
            return
        self.registry.blobs[digest] = content
        self._answer(201, Docker_Content_Digest=digest)

    do_GET = do_HEAD = do_POST = do_PATCH = do_PUT = _handle  # pylint: disable=invalid-name
