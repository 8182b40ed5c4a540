//! Lists the devices: name, description and memory in bytes, a line each, separated by tabs.

fn main() {
    for device in taper::devices() {
        let memory = device.memory.map_or_else(|| "unknown".to_string(), |bytes| bytes.to_string());
        println!("{}\t{} ({})\t{memory}", device.name, device.description, device.driver);
    }
}
