//! A page in Chromium without a window, in a frame of a given width.

use std::{fs, path::Path, process::Command};

/// The width of a phone in CSS pixels. Chromium's own window is wider, so the page is in a frame.
pub(crate) const PHONE: u32 = 390;
pub(crate) const DESKTOP: u32 = 1200;

/// The text of the probe for the page of a file.
pub(crate) fn probed(folder: &Path, page: &str, probe: &str, width: u32, dark: bool) -> String {
    fs::write(folder.join("page.html"), page.replace("</body>", probe)).unwrap();
    let frame = format!(
        "<iframe src=page.html width={width} height=900 style='border:0'></iframe>\
         <script>addEventListener('message', event => {{ document.title = encodeURIComponent(event.data) }})</script>"
    );
    fs::write(folder.join("frame.html"), frame).unwrap();
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"])
        .arg(format!("--blink-settings=preferredColorScheme={}", if dark { 0 } else { 1 }))
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .args(["--window-size=1400,1000", "--dump-dom"])
        .arg(format!("file://{}", folder.join("frame.html").display()))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let title = text.split("<title>").nth(1).and_then(|rest| rest.split("</title>").next());
    decoded(title.unwrap_or_else(|| panic!("no answer from the page: {text}")))
}

/// Text that JavaScript's `encodeURIComponent` encoded.
fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap().as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).unwrap());
        bytes.extend(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).unwrap()
}
