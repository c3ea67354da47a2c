"""A web service in one file: it answers each request with the instance and release that served it."""

import http.server
import os


class Shop(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        served_by = f"{os.environ['PHOENIX_INSTANCE']}, release {os.environ['PHOENIX_RELEASE']}"
        self.wfile.write(f"{os.environ.get('GREETING', 'hello')} from {served_by}\n".encode())


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128  # connections that wait to be accepted; the default, 5, is too few behind a load balancer


if __name__ == "__main__":
    where = os.environ.get("PHOENIX_ADDRESS", "127.0.0.1"), int(os.environ["PORT"])
    Server(where, Shop).serve_forever()
