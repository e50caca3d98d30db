"""A web API of pets on this machine, to try OneTool with: `python3 server.py`, and end it with Ctrl-C.

It needs nothing but Python. `petstore.yaml` beside it describes it.
"""

import json
import re
import sys
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

KEY = "petstore-demo-key"
PETS: dict[int, dict[str, Any]] = {
    1: {"id": 1, "name": "Minka", "kind": "cat", "age": 3},
    2: {"id": 2, "name": "Rex", "kind": "dog", "age": 7},
    3: {"id": 3, "name": "Coco", "kind": "bird", "age": 1},
}


FED = dict.fromkeys(PETS, 0)


def find_pet(path: str, pattern: str) -> dict[str, Any] | None:
    found = re.fullmatch(pattern, path)
    return PETS.get(int(found[1])) if found and found[1].isdecimal() else None


class Petstore(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        address = urlsplit(self.path)
        if address.path == "/pets":
            kinds = parse_qs(address.query).get("kind") or ["cat", "dog", "bird"]
            found = (pet for pet in PETS.values() if pet["kind"] in kinds)
            self._answer(200, sorted(found, key=lambda pet: pet["age"]))
        elif pet := find_pet(address.path, "/pets/(.+)"):
            self._answer(200, pet)
        else:
            self._answer(404, {"error": f"There is no {address.path}."})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("X-Api-Key") != KEY:
            self._answer(401, {"error": f"Send the header X-Api-Key: {KEY}"})
        elif pet := find_pet(self.path, "/pets/(.+)/feed"):
            FED[pet["id"]] += 1
            self._answer(200, {"name": pet["name"], "fed": FED[pet["id"]]})
        else:
            self._answer(404, {"error": f"There is no {self.path}."})

    def _answer(self, status: int, data: object) -> None:
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8090
    with ThreadingHTTPServer(("127.0.0.1", port), Petstore) as server:
        print(f"Petstore: http://127.0.0.1:{server.server_port}/pets", flush=True)
        print(f"Feeding a pet needs the header X-Api-Key: {KEY}", flush=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()
